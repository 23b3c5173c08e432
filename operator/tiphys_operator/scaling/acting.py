"""Carrying a decision out: a dry run before it is written down, then the scale and the resizes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import ApiError
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.decide import Outcome, View, block, refused
from tiphys_operator.scaling.hands import REFUSALS, Hands, gone_or_changed, mask_reason
from tiphys_operator.scaling.metrics import ScalingMetrics
from tiphys_operator.scaling.resizing import sizing
from tiphys_operator.scaling.shape import Shape
from tiphys_operator.scaling.workload import Target

_SCALE_TRIES = 4


@dataclass(slots=True)
class Workload:
    """What is scaled, as it was seen in this window."""

    target: Target
    shape: Shape
    refused: dict[str, int] = field(default_factory=dict)
    """Sizes that pods were refused, by uid: not tried again within the window."""


class Actor:
    """Carries decisions out at the API server: scales and resizes. All policies share one."""

    def __init__(self, hands: Hands, cluster: ScalingCluster, metrics: ScalingMetrics, clock: Clock) -> None:
        self._hands, self._cluster, self._metrics, self._clock = hands, cluster, metrics, clock

    async def act(self, outcome: Outcome, workload: Workload, *, vertical: bool) -> Outcome:
        """The outcome after acting on it. Sizes are checked even if nothing changes: pods may have started since."""
        decision, done = outcome.decision, outcome
        # what helps comes before what takes away: larger pods before fewer, and smaller ones only when there are not to be more
        larger_first = vertical and decision.applied.replicas < decision.former.replicas
        if larger_first:
            done = await self._sized(done, workload)
        if outcome.changes:
            done = await self._scaled(done, workload)
        if vertical and not larger_first and done.decision.phase == DecisionPhase.DONE:
            done = await self._sized(done, workload)
        return done

    async def size(self, workload: Workload, limit_m: int, *, shrink: bool) -> MaskReason | None:
        """Bring all pods to a size; the first reason of a refusal."""
        pods, reason = self._cluster.owned(workload.target), None
        for change in sizing(pods, workload.shape, limit_m, self._clock.now_s(), shrink=shrink).changes:
            if workload.refused.get(change.pod.uid) == change.limit_m:
                continue
            try:
                await self._hands.resize(change)
            except ApiError as error:
                if gone_or_changed(error):
                    self._metrics.resizes.labels("conflict").inc()  # its next event brings us back
                    continue
                if error.status not in REFUSALS:
                    raise
                workload.refused[change.pod.uid] = change.limit_m
                self._metrics.resizes.labels("refused").inc()
                reason = reason or mask_reason(error)
            else:
                self._metrics.resizes.labels("done").inc()
        return reason

    async def preflight(self, outcome: Outcome, view: View) -> Outcome:
        """Ask admission before anything is written down: quota, LimitRange and node capacity answer for one pod."""
        before_m, after_m = outcome.decision.former.cpu_milli, outcome.decision.applied.cpu_milli
        if not outcome.changes or before_m == after_m:
            return outcome
        changes = sizing(view.pods, view.shape, after_m, self._clock.now_s()).changes
        for change in changes[:1]:
            try:
                await self._hands.resize(change, dry_run=True)
            except ApiError as error:
                if error.status in REFUSALS:
                    move = "cpu-up" if after_m > before_m else "cpu-down"
                    return refused(outcome, move, mask_reason(error), str(error), self._clock.now_s())
                if not gone_or_changed(error):
                    raise
        return outcome

    async def _scaled(self, outcome: Outcome, workload: Workload) -> Outcome:
        """Set the number of pods. Whatever is there is compared with what was judged, so that nothing is done twice."""
        decision, target = outcome.decision, workload.target
        try:
            for _ in range(_SCALE_TRIES):
                if target.replicas == decision.applied.replicas:
                    break
                if target.replicas != decision.former.replicas:
                    return _phase(outcome, DecisionPhase.ABANDONED, f"somebody else set {target.replicas} pods meanwhile")
                try:
                    await self._hands.scale(target, decision.applied.replicas)
                    break
                except ApiError as error:
                    if not gone_or_changed(error):
                        raise
                    # mostly a status of its own controller: what was judged is compared again
                    again = await self._hands.target(target.namespace, target.kind, target.name)
                    if again is None:
                        return _phase(outcome, DecisionPhase.ABANDONED, "the workload is gone")
                    target = again
            else:
                return _phase(outcome, DecisionPhase.ABANDONED, "the workload changes too fast to be scaled")
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            move = "replicas-up" if decision.applied.replicas > decision.former.replicas else "replicas-down"
            outcome = refused(outcome, move, mask_reason(error), str(error), self._clock.now_s())
            return outcome if not outcome.changes else _phase(outcome, DecisionPhase.DONE, outcome.decision.message)
        self._metrics.stepped(decision)
        return _phase(outcome, DecisionPhase.DONE, decision.message)

    async def _sized(self, outcome: Outcome, workload: Workload) -> Outcome:
        """Give every pod the size; a step that is refused is masked."""
        decision = outcome.decision
        before_m, after_m = decision.former.cpu_milli, decision.applied.cpu_milli
        reason = await self.size(workload, after_m, shrink=decision.applied.replicas <= decision.former.replicas)
        if reason is None or after_m == before_m:
            return outcome
        move = "cpu-up" if after_m > before_m else "cpu-down"
        memory = block(outcome.memory, move, before_m, reason, self._clock.now_s())
        masked = [*decision.masked, f"{move}: {reason}"][-16:]
        return replace(outcome, memory=memory, decision=decision.model_copy(update={"masked": masked}))


def _phase(outcome: Outcome, phase: DecisionPhase, message: str) -> Outcome:
    return replace(outcome, decision=outcome.decision.model_copy(update={"phase": str(phase), "message": message[:512]}))
