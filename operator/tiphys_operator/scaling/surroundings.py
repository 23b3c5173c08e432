"""What is around a policy, asked of the API server and of what is watched: its workload, who else scales it, and what room there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import DecisionPhase, ScalingReason
from tiphys_models.api.scaling_status import Size
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import ApiError
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.runtime.events import EventWrite
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.conflicts import Conflict, conflict
from tiphys_operator.scaling.decide import overridden
from tiphys_operator.scaling.hands import REFUSALS, SCALING_MANAGER, Hands
from tiphys_operator.scaling.room import Place
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.verdicts import Finding
from tiphys_operator.scaling.workload import Target

_HOUR_S = 3600


class Surroundings:
    """One holder of the Lease looks at them."""

    def __init__(self, hands: Hands, writer: Writer, cluster: ScalingCluster, clock: Clock) -> None:
        self._hands, self._writer, self._cluster, self._clock = hands, writer, cluster, clock

    async def target(self, policy: ScalingSeen, spec: ScalingPolicySpec) -> Target | Finding:
        """The workload, or why there is none that can be scaled."""
        kind, name = spec.target_ref.kind, spec.target_ref.name
        try:
            target = await self._hands.target(policy.namespace, kind, name)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return Finding(ScalingReason.TARGET_UNREADABLE, str(error))
        if target is None:
            return Finding(ScalingReason.TARGET_NOT_FOUND, f"{kind} {name} does not exist in this namespace")
        if target.replicas == 0:
            return Finding(
                ScalingReason.IDLE, f"{kind} {name} is scaled to 0: left alone until somebody gives it a pod", current=Size(replicas=0)
            )
        return target

    async def conflict(self, policy: ScalingSeen, target: Target) -> Conflict | None:
        """The conflict with whoever else scales the workload; None if there is none."""
        try:
            others = await self._hands.others(policy.namespace)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return Conflict(ScalingReason.OTHERS_UNKNOWN, f"other autoscalers could not be listed: {error}")
        since_s = self._clock.now_s() - _HOUR_S
        times = sum(at > since_s for at in policy.status.memory.overridden)
        return conflict(policy, others, self._cluster.among(policy.namespace), times, target.manager)

    async def quotas(self, namespace: str) -> Sequence[dict[str, object]]:
        """The namespace's ResourceQuotas; none if we may not list them, because then only the API server's refusals tell."""
        try:
            return await self._hands.quotas(namespace)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return ()

    def place(self, quotas: Sequence[dict[str, object]]) -> Place:
        """Where pods can grow."""
        return Place(dict(self._cluster.observed.nodes), dict(self._cluster.observed.used_m), quotas)

    def pods(self, target: Target) -> tuple[ScaledPod, ...]:
        """The workload's unfinished pods."""
        return tuple(self._cluster.owned(target))

    async def noticed(self, policy: ScalingSeen, spec: ScalingPolicySpec, target: Target) -> ScalingSeen:
        """The policy, with a note in its memory if somebody else set the number of pods since our last step."""
        last = policy.status.last_decision
        acted = last is not None and last.phase == DecisionPhase.DONE and policy.status.observed_generation == policy.generation
        if spec.horizontal is None or last is None or not acted:
            return policy
        if target.replicas == last.applied.replicas or target.manager == SCALING_MANAGER:
            return policy
        message = f"{target.manager or 'somebody'} set {target.replicas} pods, we had set {last.applied.replicas}"
        await self._writer.write_event(EventWrite(policy, True, str(ScalingReason.REPLICAS_OVERRIDDEN), message))
        memory = overridden(policy.status.memory, self._clock.now_s())
        return replace(policy, status=policy.status.model_copy(update={"memory": memory}))
