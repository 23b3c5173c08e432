"""Every metric of the extender; the binder shares them under its own name. Label sets are fixed and start at zero; nothing is labelled
by pod, node or uid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.process_collector import ProcessCollector

from tiphys_extender.serve.wire import BAD_REQUEST_REASONS
from tiphys_models.api.reasons import FallbackReason, NeutralReason
from tiphys_models.api.selection import CANDIDATES
from tiphys_models.placement.pod_cpu import UnknownCpu
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.seats.faults import FaultCollector
from tiphys_models.seats.metrics import SeatMetrics, Service
from tiphys_models.seats.registry import Registry
from tiphys_models.serving.bounds import REFUSALS
from tiphys_models.serving.certificates import HANDSHAKE_FAILURES

KINDS = ("nodes", "pods", "policies", "plans", "switch", "models")
MODES = ("Off", "Shadow", "Canary", "Active")
OUTCOMES = ("scored", "fallback", "neutral")
CODES = ("200", "400", "404", "405", "408", "413", "414", "429", "431", "500", "503")
WATCH_REASONS = ("forbidden", "gone", "throttled", "server-error", "unreachable", "bad-object", "other")
OTHER_POLICY = "other"
"""Label of planners that other packages bring: this process knows them by their plans only."""
STORES = ("functions", "images", "idle-functions", "start-times", "lifetimes")
CHECKPOINTS = ("written", "failed", "read", "missing", "unreadable")
READINGS_REASONS = ("unavailable", "idle-unavailable", "profiles-unavailable", "pod-cpu-unavailable", "partly-missing", "unreadable")
INVALID_READING_REASONS = ("no-node-label", "duplicate-series", "not-finite", "negative", "too-large")
MODEL_REFUSALS = (
    "Missing", "ForbiddenFormat", "TooLarge", "CardInvalid", "DigestMismatch", "WeightsUnreadable", "SchemaMismatch", "ShapeMismatch",
    "TooMuchWork", "NotFinite", "UnknownPolicy", "PolicyMismatch", "InvalidSpec",
)  # fmt: skip

_DURATIONS_S = sorted({*(0.0001 * 2**n for n in range(11)), 0.005, 0.010, 0.020})
_CANDIDATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_DEVIATIONS = (0.0, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 1.0, 10.0, 100.0, 1_000.0)


class Metrics:
    """One registry a process; tests make their own."""

    service: Service = "extender"
    """Part of every name, so that no rule about one service adds up another's."""
    deciders: Sequence[Registry[Any]] = (PLACEMENT,)
    """Whose packages that cannot be used are counted."""
    kinds: tuple[str, ...] = KINDS
    codes: tuple[str, ...] = CODES
    refusals: tuple[str, ...] = tuple(dict.fromkeys((*BAD_REQUEST_REASONS, *REFUSALS.values(), "internal-error")))

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(FaultCollector(self.service, self.deciders))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tiphys_{self.service}_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"tiphys_{self.service}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"tiphys_{self.service}_{name}", text, buckets=buckets, registry=registry)

        requests = counter("requests_total", "Requests for a decision, by HTTP status.", "code")
        self.requests = {code: requests.labels(code) for code in self.codes}
        self.duration = histogram("request_duration_seconds", "From body received to answer handed over.", tuple(_DURATIONS_S))
        answers = counter("answers_total", "Answers with status 200, by outcome.", "outcome")
        self.answers = {outcome: answers.labels(outcome) for outcome in OUTCOMES}
        neutral = counter("neutral_answers_total", "Answers that made no difference between nodes.", "reason")
        self.neutral = {str(reason): neutral.labels(reason) for reason in NeutralReason}
        fallback = counter("fallback_answers_total", "Answers by the fallback rule.", "reason")
        self.fallback = {str(reason): fallback.labels(reason) for reason in FallbackReason}
        bad = counter("bad_requests_total", "Requests refused.", "reason")
        self.bad_requests = {reason: bad.labels(reason) for reason in self.refusals}
        policies = counter("policy_answers_total", "Scored and fallback answers by the policy that judged.", "policy")
        self._policy_answers = {str(name): policies.labels(name) for name in (*CANDIDATES, *PLACEMENT.foreign, OTHER_POLICY)}
        self.candidates = histogram("candidates", "Names in a request.", _CANDIDATES)
        self.score_stddev = histogram("score_stddev", "Standard deviation of the raw scores of one answer.", _DEVIATIONS)
        self.unknown_nodes = counter("unknown_nodes_total", "Candidates that no watch has shown.")
        self.reservations = gauge("reservations", "Decided pods not yet seen bound.")
        self.reservations_expired = counter("reservations_expired_total", "Reservations whose pod was never seen bound.")
        self.would_wait = counter("would_wait_total", "Decisions in which waiting for a warm instance was expected to pay.")
        choices = counter("choices_total", "First choices compared with the node bound.", "result", "mode")
        self.choices = {(r, m): choices.labels(r, m) for r in ("same", "other", "unknown") for m in ("Shadow", "Canary", "Active")}
        reasons = [str(reason) for reason in (*FallbackReason, *NeutralReason)]
        self.seat = SeatMetrics(self.service, "placement", reasons, "", registry)
        self.busiest_share = gauge("busiest_node_share", "Share of the most chosen node in the last 1,000 decisions.")
        synced = gauge("cache_synced", "Whether a first whole list has been read.", "kind")
        self.cache_synced = {kind: synced.labels(kind) for kind in self.kinds}
        objects = gauge("cache_objects", "Objects known.", "kind")
        self.cache_objects = {kind: objects.labels(kind) for kind in self.kinds}
        last_event = gauge("last_event_timestamp_seconds", "When a watch last brought anything, bookmarks included.", "kind")
        self.last_event = {kind: last_event.labels(kind) for kind in self.kinds}
        watch_errors = counter("watch_errors_total", "Lists and watches that failed.", "kind", "reason")
        self.watch_errors = {(k, r): watch_errors.labels(k, r) for k in self.kinds for r in WATCH_REASONS}
        self.readings_time = gauge("readings_timestamp_seconds", "When node readings were last taken.")
        self.readings_coverage = gauge("readings_coverage_ratio", "Share of known nodes with readings younger than 60 s.")
        readings_errors = counter("readings_errors_total", "Failed attempts to take readings.", "reason")
        self.readings_errors = {reason: readings_errors.labels(reason) for reason in READINGS_REASONS}
        invalid = counter("invalid_readings_total", "Samples refused.", "feature", "reason")
        self.invalid_readings = {(f.name, r): invalid.labels(f.name, r) for f in NODE_READINGS for r in INVALID_READING_REASONS}
        self.pod_cpu_learned = counter("pod_cpu_learned_total", "Pods that ended and whose processor time was learned.")
        unknown = counter("pod_cpu_unknown_total", "Pods that ended and whose processor time nobody could know.", "reason")
        self.pod_cpu_unknown = {str(reason): unknown.labels(reason) for reason in UnknownCpu}
        self.model_info = gauge("model_info", "1 for every model that serves some mode.", "model", "policy", "sha256")
        failures = counter("model_load_failures_total", "Artifacts refused.", "reason")
        self.model_failures = {reason: failures.labels(reason) for reason in MODEL_REFUSALS}
        self.log_dropped = counter("decision_log_dropped_total", "Decisions that could not be written to disk.")
        self.enabled = gauge("enabled", "0 while the kill switch is on.")
        self.enabled.set(1)
        routes = gauge("routes", "Valid policy objects.", "mode")
        self.routes = {mode: routes.labels(mode) for mode in MODES}
        self.invalid_policies = gauge("invalid_policies", "Policy objects that cannot be obeyed.")
        self.certificate_expiry = gauge("certificate_expiry_timestamp_seconds", "End of the served certificate; 0 without TLS.")
        self.odd_objects = counter("odd_objects_total", "Objects that were taken although something about them is absurd.", "kind")
        kept = gauge("kept_entries", "Entries held of what would otherwise grow for ever.", "store")
        self.kept = {store: kept.labels(store) for store in STORES}
        evicted = counter("evicted_entries_total", "Entries let go because a store was full, least recently used first.", "store")
        self.evicted = {store: evicted.labels(store) for store in STORES}
        checkpoints = counter("checkpoints_total", "Times that what was learned was written, or read at the start, by outcome.", "outcome")
        self.checkpoints = {outcome: checkpoints.labels(outcome) for outcome in CHECKPOINTS}
        self.checkpoint_time = gauge("checkpoint_timestamp_seconds", "When what was learned was last written; 0: never.")
        self.checkpoint_bytes = gauge("checkpoint_bytes", "Size of what was last written of it.")
        self.checkpoint_dropped = gauge("checkpoint_dropped_entries", "Least used functions and applications that had no room in it.")
        self.checkpoint_spoiled = counter("checkpoint_spoiled_entries_total", "Entries read back that could not be, and were left out.")
        self.loop_age = gauge("loop_age_seconds", "Since each loop of the process last did a round of its work.", "loop")
        self.loop_failures = counter("loop_failures_total", "Times that a loop tripped over something and was started again.", "loop")
        self.status_certificate_expiry = gauge(
            "status_certificate_expiry_timestamp_seconds", "End of the status listener's certificate; 0 without TLS."
        )
        failed = counter("tls_handshake_failures_total", "Handshakes that failed, by reason.", "reason")
        self.handshake_failures = {reason: failed.labels(reason) for reason in HANDSHAKE_FAILURES}
        self.last_scrape = gauge("last_scrape_timestamp_seconds", "When /metrics was last read before this; 0: never.")
        self.loop_lag = gauge("loop_lag_seconds", "Longest delay of the event loop since the last tick.")

    def answered_by(self, policy: str) -> None:
        """Count an answer of this policy, or planner."""
        self._policy_answers.get(policy, self._policy_answers[OTHER_POLICY]).inc()
