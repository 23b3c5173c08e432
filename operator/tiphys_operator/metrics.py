"""What the operator tells Prometheus. Labels have fixed sets of values, initialised to 0: no names of policies or pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar, cast, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.scheduling_policy import Mode
from tiphys_models.api.selection import CANDIDATES
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.scaling.registry import REGISTRY as AGENTS
from tiphys_models.seats.faults import FaultCollector
from tiphys_models.seats.metrics import SeatMetrics
from tiphys_models.selection.planners.registry import REGISTRY as PLANNERS
from tiphys_models.selection.selectors.registry import REGISTRY as SELECTORS
from tiphys_models.serving.certificates import HANDSHAKE_FAILURES
from tiphys_operator.object_guard import ObjectGuard

READY_STATES = ("True", "False", "Unknown")
MODES = (*get_args(Mode), "Invalid")


class ErrorReason(StrEnum):
    """Values of `reason` in tiphys_operator_errors_total."""

    API = "api-error"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"
    TIMEOUT = "timeout"
    LEASE = "lease-error"
    EVENTS_LIMITED = "events-limited"
    WATCH_ENDED = "watch-ended"
    INTERNAL = "internal-error"


class SelectionError(StrEnum):
    """Values of `reason` in tiphys_operator_selection_errors_total."""

    API = "api-error"
    CHOICE = "choice-failed"
    CHECKPOINT = "checkpoint-failed"
    WATCH = "watch-failed"
    PROMETHEUS = "prometheus-failed"


Part = TypeVar("Part")


class OperatorMetrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(FaultCollector("operator", (PLACEMENT, PLANNERS, SELECTORS, AGENTS)))
        self._parts: dict[Callable[[CollectorRegistry], Any], Any] = {}
        r = self.registry
        self.leader = Gauge("tiphys_operator_leader", "1 while this process holds the Lease.", registry=r)
        self.other_release = Gauge(
            "tiphys_operator_other_release_active",
            "1 while another release of Tiphys acts in this cluster and this one stands by.",
            registry=r,
        )
        self.reconciles = Counter("tiphys_operator_reconciles", "Reconciliations of all policies.", ["result"], registry=r)
        self.last_reconcile = Gauge("tiphys_operator_last_reconcile_timestamp_seconds", "When one last succeeded.", registry=r)
        self.duration = Histogram(
            "tiphys_operator_reconcile_duration_seconds",
            "How long one took.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=r,
        )
        self.policies = Gauge("tiphys_operator_policies", "Policies by mode and condition Ready.", ["mode", "ready"], registry=r)
        refused = Counter("tiphys_operator_status_refused", "Requests and connections the status listener refused.", ["reason"], registry=r)
        self.status_refused = {reason: refused.labels(reason) for reason in ("too-slow", "too-many-requests", "too-many-connections")}
        failed = Counter("tiphys_operator_tls_handshake_failures", "Handshakes that failed, by reason.", ["reason"], registry=r)
        self.handshake_failures = {reason: failed.labels(reason) for reason in HANDSHAKE_FAILURES}
        self.certificate_expiry = Gauge(
            "tiphys_operator_status_certificate_expiry_timestamp_seconds",
            "End of the status listener's certificate; 0 without TLS.",
            registry=r,
        )
        self.last_scrape = Gauge(
            "tiphys_operator_last_scrape_timestamp_seconds", "When /metrics was last read before this; 0: never.", registry=r
        )
        self.errors = Counter("tiphys_operator_errors", "What went wrong.", ["reason"], registry=r)
        self.last_event = Gauge("tiphys_operator_last_event_timestamp_seconds", "Last event of the watch on policies.", registry=r)
        self.pull_errors = Counter("tiphys_operator_decision_pull_errors", "Failed reads of a decision log.", registry=r)
        self.lost = Counter("tiphys_operator_decisions_lost", "Decisions that were dropped before they were read.", registry=r)
        self.writes = Counter("tiphys_operator_writes", "Requests that changed something.", ["kind"], registry=r)
        self.missing_permission = Gauge(
            "tiphys_operator_permission_missing", "1: RBAC denies it, and what needs it is off.", ["verb", "resource"], registry=r
        )
        self.objects = ObjectGuard(r)
        self._ages = _LoopAges()
        r.register(self._ages)
        self.watch_restarts = Counter(
            "tiphys_operator_watch_restarts", "Watches that ended by a mistake and were started again.", ["watch"], registry=r
        )
        self.pods_kept = Gauge("tiphys_operator_pods_kept", "Pods that a loop keeps in memory.", ["loop"], registry=r)
        self.loop_lag = Gauge("tiphys_operator_loop_lag_seconds", "How late the event loop woke a sleeper last.", registry=r)
        self.selection_active = Gauge(
            "tiphys_operator_selection_active", "Policies whose select has chosen this.", ["candidate"], registry=r
        )
        self.selection_intervals = Counter("tiphys_operator_selection_intervals", "Intervals by why it chose.", ["reason"], registry=r)
        self.selection_switches = Counter("tiphys_operator_selection_switches", "Changes of a policy's candidate.", registry=r)
        self.selection_learned = Counter("tiphys_operator_selection_learned", "Decisions whose measured cost was learned.", registry=r)
        self.selection_predicted = Counter("tiphys_operator_selection_predicted_cost", "What they were predicted to cost.", registry=r)
        self.selection_measured = Counter("tiphys_operator_selection_measured_cost", "What they cost, in the same unit.", registry=r)
        self.selection_usd = Counter("tiphys_operator_selection_usd", "Share of nodes' prices charged to decisions.", registry=r)
        self.selection_joules = Counter("tiphys_operator_selection_joules", "The same of their energy, by power curves.", registry=r)
        self.selection_pods = Counter("tiphys_operator_selection_pods", "Pods under account that ended.", registry=r)
        self.selection_late = Counter("tiphys_operator_selection_late_pods", "Those that ended after their deadline.", registry=r)
        self.selection_errors = Counter("tiphys_operator_selection_errors", "Intervals that failed.", ["reason"], registry=r)
        self.selection_failing = Gauge("tiphys_operator_selection_failing", "Policies whose last interval came to nothing.", registry=r)
        self.selection_overdue = Gauge(
            "tiphys_operator_selection_overdue_seconds", "How long ago the most urgent interval should have begun or ended.", registry=r
        )
        for choice in ChoiceReason:
            self.selection_intervals.labels(choice)
        for failure in SelectionError:
            self.selection_errors.labels(failure)
        self.selection_seat = SeatMetrics("operator", "selection", (), "weighted costs of pods, as the mean of an interval's", r)
        self.active_candidates(())
        for result in ("success", "error"):
            self.reconciles.labels(result)
        for reason in ErrorReason:
            self.errors.labels(reason)
        for kind in ("status", "event", "plan", "scale", "resize", "gate", "hint"):
            self.writes.labels(kind)
        self.count_policies({})

    def part(self, make: Callable[[CollectorRegistry], Part]) -> Part:
        """The metrics of one system, in the same registry; made once, whoever asks first."""
        if make not in self._parts:
            self._parts[make] = make(self.registry)
        return cast("Part", self._parts[make])

    def count_policies(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set all combinations of mode and Ready."""
        for mode in MODES:
            for ready in READY_STATES:
                self.policies.labels(mode, ready).set(counts.get((mode, ready), 0))

    def show_loops(self, beats: Heartbeats) -> None:
        """Metrics show, from now on, how long ago each of these loops last did its work."""
        self._ages.beats = beats

    def active_candidates(self, active: Sequence[str]) -> None:
        """Count all candidates anew."""
        for name in (*CANDIDATES, *PLANNERS.foreign, *PLACEMENT.foreign):
            self.selection_active.labels(name).set(active.count(name))

    def selection_error(self, reason: SelectionError) -> None:
        """The counter of selection errors with this reason grows by one."""
        self.selection_errors.labels(reason).inc()

    def error(self, reason: ErrorReason) -> None:
        """The counter of errors with this reason grows by one."""
        self.errors.labels(reason).inc()

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _LoopAges(Collector):
    """Read when Prometheus asks: an age that a loop had to write itself would stand still with it."""

    def __init__(self) -> None:
        self.beats: Heartbeats | None = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One gauge with a loop a label value."""
        ages = GaugeMetricFamily("tiphys_operator_loop_age_seconds", "How long ago each loop last did its work.", labels=["loop"])
        for loop, age_s in (self.beats.ages_s() if self.beats is not None else {}).items():
            ages.add_metric([loop], age_s)
        yield ages
