"""What the operator tells Prometheus. Labels have fixed sets of values, initialised to 0: no names of policies or pods."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tiphys_models.api.scheduling_policy import Mode

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


class OperatorMetrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self.leader = Gauge("tiphys_operator_leader", "1 while this process holds the Lease.", registry=r)
        self.reconciles = Counter("tiphys_operator_reconciles", "Reconciliations of all policies.", ["result"], registry=r)
        self.last_reconcile = Gauge("tiphys_operator_last_reconcile_timestamp_seconds", "When one last succeeded.", registry=r)
        self.duration = Histogram(
            "tiphys_operator_reconcile_duration_seconds",
            "How long one took.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
            registry=r,
        )
        self.policies = Gauge("tiphys_operator_policies", "Policies by mode and condition Ready.", ["mode", "ready"], registry=r)
        self.errors = Counter("tiphys_operator_errors", "What went wrong.", ["reason"], registry=r)
        self.last_event = Gauge("tiphys_operator_last_event_timestamp_seconds", "Last event of the watch on policies.", registry=r)
        self.pull_errors = Counter("tiphys_operator_decision_pull_errors", "Failed reads of a decision log.", registry=r)
        self.lost = Counter("tiphys_operator_decisions_lost", "Decisions that were dropped before they were read.", registry=r)
        self.writes = Counter("tiphys_operator_writes", "Requests that changed something.", ["kind"], registry=r)
        self.missing_permission = Gauge(
            "tiphys_operator_permission_missing", "1: RBAC denies it, and what needs it is off.", ["verb", "resource"], registry=r
        )
        self.loop_lag = Gauge("tiphys_operator_loop_lag_seconds", "How late the event loop woke a sleeper last.", registry=r)
        for result in ("success", "error"):
            self.reconciles.labels(result)
        for reason in ErrorReason:
            self.errors.labels(reason)
        for kind in ("status", "event"):
            self.writes.labels(kind)
        self.count_policies({})

    def count_policies(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Set all combinations of mode and Ready."""
        for mode in MODES:
            for ready in READY_STATES:
                self.policies.labels(mode, ready).set(counts.get((mode, ready), 0))

    def error(self, reason: ErrorReason) -> None:
        """Count one."""
        self.errors.labels(reason).inc()

    def render(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
