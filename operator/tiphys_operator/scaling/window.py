"""One window of one policy, with hands: look, decide, write the intent down, act, write what was done.

Whoever dies in between leaves an intent: a size, not a step. Its successor compares it with what is there and finishes it, so that nothing
is ever done twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tiphys_models.api.reasons import DecisionPhase, ScalingReason
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import LastDecision, Size
from tiphys_models.api.scaling_transition import Transition
from tiphys_models.clients.kube import ApiError
from tiphys_models.clients.prometheus import PrometheusClient, Turns
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import ArtifactRefused, InvalidInput
from tiphys_operator.events import EventWrite
from tiphys_operator.scaling.acting import Actor, Workload
from tiphys_operator.scaling.agents import AgentShelf, Chosen
from tiphys_operator.scaling.believed import believed, shifted
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.conflicts import Conflict, conflict
from tiphys_operator.scaling.decide import Outcome, View, current_size, overridden
from tiphys_operator.scaling.finishing import allowed_now, too_old
from tiphys_operator.scaling.hands import REFUSALS, SCALING_MANAGER, Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.judging import Judge, judge_of, judged_window
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.metrics import IntentResult, RaiseResult, ScalingError, ScalingMetrics
from tiphys_operator.scaling.raising import Glimpse, known_cpu_ms, overrun, raised
from tiphys_operator.scaling.reach import Reach
from tiphys_operator.scaling.reader import WindowReader
from tiphys_operator.scaling.resizing import sizing
from tiphys_operator.scaling.room import Place
from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.shape import shape_of
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.verdicts import Finding, events, status_of
from tiphys_operator.scaling.workload import Target
from tiphys_operator.writer import Writer

log = logging.getLogger(__name__)

_CLOCK_SET_S = 1.0
"""A difference between the two clocks that no drift makes between two windows."""


@dataclass(slots=True)
class Running:
    """One policy between its windows. Nothing in it is missed after a restart."""

    generation: int = -1
    chosen: Chosen | None = None
    judge: Judge | None = None
    reader: WindowReader | None = None
    workload: Workload | None = None
    in_force_m: int | None = None
    """CPU of each pod as this process last decided or found it; None while it does not act."""
    finished: str = ""
    """Signature of the last intent that was done and written down as done: shown once more, it is none."""
    ahead_s: float | None = None
    """Of the wall clock before the monotonic one, when the status was last written."""
    now_ahead_s: float = 0.0

    @property
    def shift_s(self) -> float:
        """By how much the wall clock was set forward since."""
        shift_s = 0.0 if self.ahead_s is None else self.now_ahead_s - self.ahead_s
        return shift_s if abs(shift_s) > _CLOCK_SET_S else 0.0

    def begin_anew(self) -> None:
        """Half of a step may be in what decides, and a thread that ran away still writes into it."""
        self.generation, self.chosen, self.judge, self.reader = -1, None, None, None


class WindowRunner:
    """Shared by all policies."""

    def __init__(
        self, hands: Hands, writer: Writer, cluster: ScalingCluster, prometheus: PrometheusClient | None, metrics: ScalingMetrics,
        clock: Clock, shelf: AgentShelf, transitions: TransitionLog, on_written: Callable[[dict[str, Any]], object],
        reach: Reach, keys: IntentKeys,
    ) -> None:  # fmt: skip
        self._shelf, self._transitions, self._reach, self._keys = shelf, transitions, reach, keys
        self._hands, self._writer, self._cluster, self._prometheus = hands, writer, cluster, prometheus
        self._actor, self._turns = Actor(hands, cluster, metrics, clock), Turns(1)
        self._metrics, self._clock, self._on_written = metrics, clock, on_written

    async def run(self, policy: ScalingSeen, running: Running) -> None:
        """ApiError or Unavailable if the API server fails; whatever the policy itself lacks stands in its status."""
        policy = self._trusted(policy, running)
        spec = policy.spec
        if spec is None:
            await self._tell(policy, Finding(ScalingReason.INVALID_SPEC, policy.invalid), running)
            return
        if spec.mode == "Off":
            await self._tell(policy, Finding(ScalingReason.DISABLED, "mode is Off: nothing is measured"), running)
            return
        if (refusal := self._reach.refusal(policy.namespace)) is not None:
            await self._tell(policy, Finding(ScalingReason.NAMESPACE_NOT_ALLOWED, refusal), running)
            return
        target = await self._target(policy, spec)
        if isinstance(target, Finding):
            await self._tell(policy, target, running)
            return
        problem = await self._prepare(policy, spec, target, running)
        if problem is not None:
            await self._tell(policy, problem, running)
            return
        await self._decide(policy, spec, target, running)

    async def tell(self, policy: ScalingSeen, running: Running, reason: ScalingReason, message: str) -> None:
        """Say that a window came to nothing, and why."""
        await self._tell(policy, Finding(reason, message), running)

    def _trusted(self, policy: ScalingSeen, running: Running) -> ScalingSeen:
        """With only that of its status's memory which can be so, in the time of today's clock."""
        now_s = self._clock.now_s()
        running.now_ahead_s = now_s - self._clock.monotonic_s()
        if running.ahead_s is None:
            running.ahead_s = running.now_ahead_s
        before = policy.status.memory
        memory = believed(shifted(before, running.shift_s) if running.shift_s else before, now_s)
        return policy if memory == before else replace(policy, status=policy.status.model_copy(update={"memory": memory}))

    async def align(self, policy: ScalingSeen, running: Running) -> None:
        """Bring pods that started or were delayed to the size that is in force, between two windows."""
        spec = policy.spec
        if running.workload is None or spec is None or spec.vertical is None or not _acts(policy, spec) or running.in_force_m is None:
            return
        # not what the status says: others may have written there
        await self._actor.size(running.workload, min(running.in_force_m, spec.vertical.max_cpu_milli), shrink=False)

    async def look(self, policy: ScalingSeen, running: Running) -> None:
        """Between two windows: raise CPU in place where more arrives than fits. Everything else waits for the window's end."""
        policy = self._trusted(policy, running)
        spec, reader, workload = policy.spec, running.reader, running.workload
        if spec is None or reader is None or workload is None or not looks(policy, spec):
            return
        pods = self._cluster.owned(workload.target)
        seen, now_s = await reader.look(self._prometheus, pods), self._clock.now_s()
        cpu_ms = known_cpu_ms(policy, spec)
        if seen is None or cpu_ms is None:
            return
        view = View(workload.target, workload.shape, pods, Measured(), (), self._place(()))
        if not overrun(spec, view, seen, cpu_ms):
            return
        # first without asking the API server: an overload that bounds do not let grow lasts for many looks
        possible = raised(policy, spec, view, seen, now_s) is not None
        done = possible and await self._raise(policy, spec, running, workload, seen)
        self._metrics.raises.labels(RaiseResult.DONE if done else RaiseResult.HINDERED).inc()

    async def _raise(self, policy: ScalingSeen, spec: ScalingPolicySpec, running: Running, workload: Workload, seen: Glimpse) -> bool:
        """With everything that a window looks at before it acts; whether it was done."""
        target, quotas = await asyncio.gather(self._target(policy, spec), self._quotas(policy.namespace))
        if isinstance(target, Finding) or await self._conflict(policy, target) is not None:
            return False  # the window's end says why
        running.workload = replace(workload, target=target)
        pods, now_s = self._cluster.owned(target), self._clock.now_s()
        view = View(target, workload.shape, pods, Measured(), (), self._place(quotas))
        outcome = raised(policy, spec, view, seen, now_s)
        if outcome is None:
            return False
        outcome = await self._actor.preflight(outcome, view)
        done = await self._carry_out(policy, spec, view, outcome, running)
        self._metrics.decisions.labels(done.decision.phase).inc()
        if done.decision.phase != DecisionPhase.DONE:
            return False
        if running.judge is not None:
            running.judge.raised()
        return True

    def _place(self, quotas: Sequence[dict[str, object]]) -> Place:
        return Place(dict(self._cluster.nodes), dict(self._cluster.used_m), quotas)

    async def _target(self, policy: ScalingSeen, spec: ScalingPolicySpec) -> Target | Finding:
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

    async def _prepare(self, policy: ScalingSeen, spec: ScalingPolicySpec, target: Target, running: Running) -> Finding | None:
        shape = shape_of(target, spec.vertical)
        if isinstance(shape, str):
            return Finding(ScalingReason.TARGET_UNFIT, shape)
        running.workload = Workload(target, shape)
        same, former = running.generation == policy.generation, running.chosen
        try:
            running.chosen = await self._shelf.choose(spec, policy.status.agent, former if same else None)
        except (InvalidInput, ArtifactRefused) as error:
            return Finding(ScalingReason.AGENT_UNAVAILABLE, str(error))
        if not same or former is None or running.chosen.agent is not former.agent:
            running.judge = judge_of(running.chosen.agent, spec)
        if not same or running.reader is None:
            running.reader = WindowReader(spec, policy.namespace, shape.container, self._turns)
            running.in_force_m = None
            running.generation = policy.generation
        return None

    async def _decide(self, policy: ScalingSeen, spec: ScalingPolicySpec, target: Target, running: Running) -> None:
        chosen, reader, workload = running.chosen, running.reader, running.workload
        if chosen is None or reader is None or workload is None:
            raise InvalidInput("a policy is prepared before it decides")
        policy = await self._noticed(policy, spec, target)
        found = await self._conflict(policy, target)
        pods = self._cluster.owned(target)
        measured = await reader.read(self._prometheus, pods, self._clock.now_s())
        quotas = await self._quotas(policy.namespace)
        view = View(target, workload.shape, pods, measured, reader.rates, self._place(quotas), found)
        if (intent := self._intent(policy, spec, view, running)) is not None:
            log.info("finishing what a predecessor intended", extra={"fields": {"policy": policy.key, "decision": intent.number}})
            outcome = Outcome(intent, policy.status.memory, None)
        else:
            # learned agents take milliseconds: the Lease must be renewed meanwhile
            try:
                outcome, taught = await asyncio.to_thread(
                    judged_window, policy, spec, chosen.agent, running.judge, view, self._clock.now_s()
                )
            except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
                self._metrics.errors.labels(ScalingError.AGENT).inc()
                log.exception("an agent failed", extra={"fields": {"policy": policy.key, "agent": spec.agent.kind}})
                why = f"{spec.agent.kind} failed: {type(error).__name__}: {error}"
                await self._tell(policy, Finding(ScalingReason.AGENT_UNAVAILABLE, why), running)
                return
            self._count(outcome, spec)
            self._learn(running.judge, taught)
            asked, outcome = outcome, await self._actor.preflight(outcome, view)
            if running.judge is not None and outcome is not asked:
                running.judge.hindered()
        await self._carry_out(policy, spec, view, outcome, running)

    async def _carry_out(self, policy: ScalingSeen, spec: ScalingPolicySpec, view: View, outcome: Outcome, running: Running) -> Outcome:
        """Write the intent down, act, write what was done; what became of it."""
        found = view.conflict
        if outcome.changes and not outcome.decision.mac:
            outcome = replace(outcome, decision=self._keys.sign(policy, outcome.decision))
        sizes = sizing(view.pods, view.shape, outcome.decision.applied.cpu_milli, self._clock.now_s())
        finding = Finding(outcome=outcome, conflict=found, pods=sizes.counts, current=current_size(view), chosen=_shown(running))
        written = await self._tell(policy, finding, running)
        back = outcome.memory.rolled_back
        if written is not None and back is not None and back != policy.status.memory.rolled_back:
            self._metrics.rollbacks.inc()
            log.warning("the rule takes over", extra={"fields": {"policy": policy.key, "why": back.message}})
        workload = running.workload
        if written is None or workload is None or found is not None or policy.paused or spec.mode != "Active":
            running.in_force_m = None
            return outcome
        if outcome.held is not None:
            running.in_force_m = current_size(view).cpu_milli if running.in_force_m is None else running.in_force_m
            return outcome
        running.in_force_m = outcome.decision.applied.cpu_milli
        done = await self._actor.act(outcome, workload, vertical=spec.vertical is not None)
        if done is not outcome:
            abandoned = done.decision.phase == DecisionPhase.ABANDONED
            running.in_force_m = (current_size(view) if abandoned else done.decision.applied).cpu_milli
            stopped = done.decision.phase == DecisionPhase.ABANDONED or done.decision.masked != outcome.decision.masked
            if running.judge is not None and stopped:
                running.judge.hindered()
            done = replace(done, decision=done.decision.model_copy(update={"mac": ""}))  # of intents only
            if await self._tell(written, replace(finding, outcome=done), running) is not None:
                running.finished = outcome.decision.mac
        return done

    def _intent(self, policy: ScalingSeen, spec: ScalingPolicySpec, view: View, running: Running) -> LastDecision | None:
        """What a predecessor was about to do for this very spec, if it was one of ours and may still be done."""
        last, now_s = policy.status.last_decision, self._clock.now_s()
        if last is None or last.phase != DecisionPhase.INTENDED or policy.status.observed_generation != policy.generation:
            return None
        if spec.mode != "Active" or view.conflict is not None or policy.paused or (last.mac and last.mac == running.finished):
            return None
        found = self._keys.doubt(policy, last)
        if found is None and too_old(last, spec, now_s, running.shift_s):
            found = IntentResult.OLD
        if found is None and not allowed_now(spec, policy.status.memory, last, view, now_s):
            found = IntentResult.NOT_ALLOWED
        self._metrics.intents.labels(found or IntentResult.FINISHED).inc()
        if found is not None:
            fields = {"policy": policy.key, "decision": last.number, "why": str(found)}
            log.warning("an intent in a status is not obeyed: decided anew", extra={"fields": fields})
        return last if found is None else None

    async def _noticed(self, policy: ScalingSeen, spec: ScalingPolicySpec, target: Target) -> ScalingSeen:
        """With a note in memory if somebody else set the number of pods since our last step."""
        last = policy.status.last_decision
        acted = last is not None and last.phase == DecisionPhase.DONE and policy.status.observed_generation == policy.generation
        if (
            spec.horizontal is None
            or not acted
            or last is None
            or target.replicas == last.applied.replicas
            or target.manager == SCALING_MANAGER
        ):
            return policy
        message = f"{target.manager or 'somebody'} set {target.replicas} pods, we had set {last.applied.replicas}"
        await self._writer.write_event(EventWrite(policy, True, str(ScalingReason.REPLICAS_OVERRIDDEN), message))
        memory = overridden(policy.status.memory, self._clock.now_s())
        return replace(policy, status=policy.status.model_copy(update={"memory": memory}))

    async def _conflict(self, policy: ScalingSeen, target: Target) -> Conflict | None:
        try:
            others = await self._hands.others(policy.namespace)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            return Conflict(ScalingReason.OTHERS_UNKNOWN, f"other autoscalers could not be listed: {error}")
        since_s = self._clock.now_s() - 3600
        times = sum(at > since_s for at in policy.status.memory.overridden)
        return conflict(policy, others, self._cluster.policies.values(), times, target.manager)

    async def _quotas(self, namespace: str) -> Sequence[dict[str, object]]:
        try:
            return await self._hands.quotas(namespace)
        except ApiError as error:
            if error.status not in REFUSALS:
                raise
            # then only the API server's refusals tell
            return ()

    async def _tell(self, policy: ScalingSeen, finding: Finding, running: Running) -> ScalingSeen | None:
        """Write the status if it differs, then its Events; None if the policy changed meanwhile."""
        status = status_of(policy, finding, self._clock.now_s())
        if status == policy.status:
            return policy
        written = await self._hands.write(policy, status, lambda: self._cluster.policies.get(policy.uid))
        if written is None:
            return None
        running.ahead_s = running.now_ahead_s  # what it remembers is in this time now
        self._on_written(written)
        for event in events(policy, status):
            await self._writer.write_event(event)
        return scaling_seen(written)

    def _learn(self, judge: Judge | None, taught: Transition | None) -> None:
        if taught is not None:
            self._transitions.append(taught)
            self._metrics.transitions.labels("recorded").inc()
        if judge is not None and judge.broken:
            self._metrics.transitions.labels("broken").inc(judge.broken)
            judge.broken = 0

    def _count(self, outcome: Outcome, spec: ScalingPolicySpec) -> None:
        m, decision = self._metrics, outcome.decision
        m.decisions.labels(decision.phase).inc()
        if outcome.held is not None:
            m.holds.labels(outcome.held).inc()
            return
        dimensions = [name for name, there in (("replicas", spec.horizontal), ("cpu", spec.vertical)) if there is not None]
        for dimension, reason in zip(dimensions, outcome.limits, strict=True):
            m.limits.labels(dimension, reason).inc()
        for masked in decision.masked:
            m.masks.labels(masked.rpartition(" ")[2]).inc()
        if (window := outcome.window) is not None:
            late = window.late
            verdict = "empty" if late is None else "good" if late <= 1 - spec.objective.percentile / 100 + 1e-9 else "missed"
            m.windows.labels(verdict).inc()
            m.requests.inc(window.completed)
            m.good.inc(window.completed * (1 - (late or 0.0)))


def _shown(running: Running) -> Chosen | None:
    """With how the agent compares."""
    chosen, judge = running.chosen, running.judge
    if chosen is None or chosen.seen is None or judge is None:
        return chosen
    compared = len(judge.ahead)
    ahead = round(1000 * judge.mean_ahead) if compared else None
    return replace(chosen, seen=chosen.seen.model_copy(update={"compared": compared, "ahead_permille": ahead}))


def looks(policy: ScalingSeen, spec: ScalingPolicySpec) -> bool:
    """Whether a policy may be raised between windows."""
    wanted = spec.vertical is not None and spec.vertical.between_windows == "Raise" and spec.objective.metrics.in_flight is not None
    return wanted and _acts(policy, spec)


def _acts(policy: ScalingSeen, spec: ScalingPolicySpec) -> bool:
    """Whether sizes may be changed between windows: as the last status says, for this very generation."""
    status, last = policy.status, policy.status.last_decision
    settled = last is not None and last.phase in (DecisionPhase.DONE, DecisionPhase.HELD)
    free = any(c.type == "Conflict" and c.status == "False" for c in status.conditions)
    active = spec.mode == "Active" and spec.vertical is not None and not policy.paused and not policy.deleting
    return active and settled and free and status.observed_generation == policy.generation
