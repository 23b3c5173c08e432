"""Says what a window came to: in the status and its Events, in metrics, in the decision log, and to the trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.base.clock import Clock
from tiphys_models.scaling.transition import Transition
from tiphys_models.seats.record import ended
from tiphys_models.seats.seat import DEADLINE, NO_ANSWER, POLICY_ERROR
from tiphys_operator.records import Records
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.decide import Outcome
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.judging import Judge
from tiphys_operator.scaling.metrics import ScalingError, ScalingMetrics
from tiphys_operator.scaling.records import ending_of, record_of
from tiphys_operator.scaling.running import Case, Running
from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.verdicts import Finding, events, status_of


class Teller:
    """Writes statuses, Events, records and metrics of all policies, for one holder of the Lease."""

    def __init__(
        self, hands: Hands, writer: Writer, cluster: ScalingCluster, metrics: ScalingMetrics, clock: Clock,
        transitions: TransitionLog, records: Records, on_written: Callable[[dict[str, Any]], object],
    ) -> None:  # fmt: skip
        self._hands, self._writer, self._cluster, self._metrics, self._clock = hands, writer, cluster, metrics, clock
        self._transitions, self._records, self._on_written = transitions, records, on_written

    async def tell(self, policy: ScalingSeen, finding: Finding, running: Running) -> ScalingSeen | None:
        """Write the status if there is news in it, then its Events; None if the policy changed meanwhile."""
        status = status_of(policy, finding, self._clock.now_s())
        if (kept := running.unwritten.kept(policy, status, self._clock.monotonic_s())) is not None:
            running.ahead_s = running.now_ahead_s
            return kept
        written = await self._hands.write(policy, status, lambda: self._cluster.policies.get(policy.uid))
        if written is None:
            return None
        running.ahead_s = running.now_ahead_s  # what it remembers is in this time now
        running.unwritten.written(self._clock.monotonic_s())
        self._on_written(written)
        for event in events(policy, status):
            await self._writer.write_event(event)
        return scaling_seen(written)

    def decided(self, case: Case, outcome: Outcome, taught: Transition | None) -> None:
        """Count a decision and how the one before it ended, and keep what there is to learn."""
        running, spec = case.running, case.spec
        if running.recorded:
            ended(self._records, running.recorded, ending_of(outcome, spec))
        if running.judge is not None and (settled := running.judge.settled) is not None:
            self._metrics.seat.ended(settled.opened.group, -settled.reward)
        if (answered := outcome.answered) is not None:
            self._metrics.seat.answered(answered.outcome, answered.group, answered.reason, same=outcome.agreed)
            if answered.missing in (POLICY_ERROR, NO_ANSWER, DEADLINE):
                self._metrics.errors.labels(ScalingError.AGENT).inc()
        self._learn(running.judge, taught)
        self._count(outcome, spec)

    def record(self, case: Case, done: Outcome) -> None:
        """Keep a decision with its fate."""
        record = record_of(case.policy, case.spec, done, self._clock.now_s())
        case.running.recorded = self._records.append(record) if record is not None else 0

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
