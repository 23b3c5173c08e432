"""What scaling tells Prometheus: sums over policies, because names of workloads are no labels. Per workload, see status."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from enum import StrEnum
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from tiphys_models.api.scaling_policy import ScalingMode
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason, ScalingReason
from tiphys_models.api.scaling_status import LastDecision
from tiphys_models.scaling.limits import LimitReason
from tiphys_models.seats.metrics import SeatMetrics
from tiphys_models.seats.seat import DEADLINE

WORSE_THAN_RULE = "worse-than-rule"
"""Why the rule decides for an agent that was rolled back: in `status.lastDecision.outcomeReason`, and a label."""
MODES = (*get_args(ScalingMode), "Invalid")
READY = ("True", "False", "Unknown")
DIMENSIONS = ("replicas", "cpu")
SIZES = ("current", "wanted", "applied")
VERDICTS = ("good", "missed", "empty")
HOLDS = (
    ScalingReason.PROMETHEUS_UNREACHABLE,
    ScalingReason.ANSWER_TOO_LARGE,
    ScalingReason.SERIES_MISSING,
    ScalingReason.SAMPLES_STALE,
    ScalingReason.SAMPLES_UNUSABLE,
    ScalingReason.NO_BUCKET_EDGE,
    ScalingReason.CAPACITY_UNKNOWN,
)
OWNERS = (
    ScalingReason.OWNED_BY_HPA,
    ScalingReason.OWNED_BY_VPA,
    ScalingReason.OWNED_BY_KEDA,
    ScalingReason.OWNED_BY_POLICY,
    ScalingReason.OVERRIDDEN,
    ScalingReason.OTHERS_UNKNOWN,
)


class ScalingError(StrEnum):
    """Values of `reason` in tiphys_operator_scaling_errors_total."""

    API = "api-error"
    AGENT = "agent-failed"
    WATCH = "watch-failed"


class RaiseResult(StrEnum):
    """Values of `result` in tiphys_operator_scaling_raises_total."""

    DONE = "done"
    HINDERED = "hindered"
    """A raise prevented by bounds, limits or masks, by admission, or because somebody else scales the workload now."""


class IntentResult(StrEnum):
    """Values of `result` in tiphys_operator_scaling_intents_total: what became of an intent that was found in a status."""

    FINISHED = "finished"
    UNSIGNED = "unsigned"
    """An intent without a signature: written by an older version, or by somebody else."""
    NOT_OURS = "not-ours"
    """An intent signed for something else, or with a key that is not known."""
    OLD = "too-old"
    NOT_ALLOWED = "not-allowed-now"
    """Ours, and beyond what bounds, rates or masks allow now."""


class ScalingMetrics:
    """Into the operator's registry; every label has all its values from the start."""

    def __init__(self, registry: CollectorRegistry) -> None:
        p, r = "tiphys_operator_scaling", registry
        self.policies = Gauge(f"{p}_policies", "ScalingPolicies by mode and condition Ready.", ["mode", "ready"], registry=r)
        self.conflicts = Gauge(f"{p}_conflicts", "ScalingPolicies that only recommend, by who else scales.", ["reason"], registry=r)
        self.decisions = Counter(f"{p}_decisions", "Decisions by what became of them.", ["phase"], registry=r)
        self.holds = Counter(f"{p}_holds", "Windows in which nothing could be decided.", ["reason"], registry=r)
        self.limits = Counter(f"{p}_limits", "Decisions by the clamp that had the last word.", ["dimension", "reason"], registry=r)
        self.masks = Counter(f"{p}_masks", "Moves that were not possible in a window.", ["reason"], registry=r)
        self.steps = Counter(f"{p}_steps", "Changes carried out.", ["dimension", "direction"], registry=r)
        self.resizes = Counter(f"{p}_resizes", "Resizes of single pods.", ["result"], registry=r)
        self.raises = Counter(f"{p}_raises", "Jumps seen between two windows by whether CPU was raised.", ["result"], registry=r)
        self.windows = Counter(f"{p}_windows", "Measured windows by whether they kept the objective.", ["verdict"], registry=r)
        self.requests = Counter(f"{p}_requests", "Requests in measured windows.", registry=r)
        self.good = Counter(f"{p}_good_requests", "Those within their objective.", registry=r)
        self.replicas = Gauge(f"{p}_replicas", "Pods of all policies together.", ["size"], registry=r)
        self.cpu = Gauge(f"{p}_cpu_cores", "CPU limits of all their pods together.", ["size"], registry=r)
        self.latency = Gauge(f"{p}_latency_ratio", "Highest percentile of latency as a multiple of its objective.", registry=r)
        self.transitions = Counter(
            f"{p}_transitions", "Decisions by whether their window was measured and can teach.", ["result"], registry=r
        )
        self.rollbacks = Counter(f"{p}_rollbacks", "How often the rule took over from an agent that was worse.", registry=r)
        self.rolled_back = Gauge(f"{p}_rolled_back", "ScalingPolicies whose rule decides instead of their agent.", registry=r)
        self.partial = Gauge(f"{p}_partial", "ScalingPolicies whose last window was measured in part: nothing shrinks.", registry=r)
        self.overdue = Gauge("tiphys_operator_windows_overdue", "Windows of scaling that are late by more than an interval.", registry=r)
        self.overdue_s = Gauge(
            "tiphys_operator_window_overdue_seconds",
            "How long ago the latest window should have ended well; negative: none is late.",
            registry=r,
        )
        self.intents = Counter(f"{p}_intents", "Intents found in statuses by what became of them.", ["result"], registry=r)
        self.asks = Counter(f"{p}_asks", "Requests for what no watch told a window.", ["about"], registry=r)
        self.errors = Counter(f"{p}_errors", "Windows that failed, and watches.", ["reason"], registry=r)
        self.seat = SeatMetrics("operator", "scaling", (WORSE_THAN_RULE, DEADLINE), "what windows lost (minus their reward)", r)
        for phase in DecisionPhase:
            self.decisions.labels(phase)
        for hold in HOLDS:
            self.holds.labels(hold)
        for mask in MaskReason:
            self.masks.labels(mask)
        for dimension in DIMENSIONS:
            for limit in LimitReason:
                self.limits.labels(dimension, limit)
            for direction in ("up", "down"):
                self.steps.labels(dimension, direction)
        for result in ("done", "refused", "conflict"):
            self.resizes.labels(result)
        for raised in RaiseResult:
            self.raises.labels(raised)
        for verdict in VERDICTS:
            self.windows.labels(verdict)
        for result in ("recorded", "broken"):
            self.transitions.labels(result)
        for intent in IntentResult:
            self.intents.labels(intent)
        for about in ("target", "others", "quotas"):
            self.asks.labels(about)
        for error in ScalingError:
            self.errors.labels(error)
        self.count((), ())
        self.sizes((), ())

    def count(self, policies: Iterable[tuple[str, str]], conflicts: Iterable[str]) -> None:
        """Set all combinations of mode and Ready, and all reasons of conflicts."""
        counts, reasons = Tally(policies), Tally(conflicts)
        for mode in MODES:
            for ready in READY:
                self.policies.labels(mode, ready).set(counts[mode, ready])
        for reason in OWNERS:
            self.conflicts.labels(reason).set(reasons[str(reason)])

    def sizes(self, decisions: Iterable[LastDecision], latencies: Iterable[float]) -> None:
        """Sums over the last decisions, and the worst latency."""
        made = list(decisions)
        for what in SIZES:
            found = [{"current": d.former, "wanted": d.wanted or d.former, "applied": d.applied}[what] for d in made]
            self.replicas.labels(what).set(sum(s.replicas for s in found))
            self.cpu.labels(what).set(sum(s.replicas * s.cpu_milli for s in found) / 1000)
        self.latency.set(max(latencies, default=0.0))

    def stepped(self, decision: LastDecision) -> None:
        """Count what was carried out."""
        for dimension, before, after in (
            ("replicas", decision.former.replicas, decision.applied.replicas),
            ("cpu", decision.former.cpu_milli, decision.applied.cpu_milli),
        ):
            if before != after:
                self.steps.labels(dimension, "up" if after > before else "down").inc()
