"""Metrics of the binder's listener: the extender's under the binder's name, and what only callers and their calls have."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.refused import CODES, REASONS

FINISHED = ("released", "unknown")
HELD_ENDS = ("warm", "cold", "gone")
"""How waiting ended: on a warm instance, where one has to be started, or because the caller fell silent."""


class CallerMetrics(Metrics):
    """Label sets are fixed and start at zero; nothing is labelled by tenant, function, node or placement."""

    service = "binder"
    codes = CODES
    refusals = REASONS

    def __init__(self) -> None:
        super().__init__()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tiphys_binder_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tiphys_binder_{name}", text, registry=self.registry)

        self.open = gauge("open_placements", "Placements neither finished nor expired.")
        finished = counter("finished_total", "Calls of finished, by whether there was something to release.", "result")
        self.finished = {result: finished.labels(result) for result in FINISHED}
        self.expired = counter("leases_expired_total", "Placements that were neither finished nor renewed in time.")
        self.relearned = counter("placements_relearned_total", "Placements taken from a caller because this process did not know them.")
        self.replayed = counter("replayed_answers_total", "Answers given again for an idempotency key.")
        self.outside_pool = counter("candidates_outside_pool_total", "Candidates left out because they are not in the pool.")
        self.waiting = gauge("calls_waiting", "Calls that were told to wait for a warm instance and still ask.")
        self.held = counter("calls_held_total", "Calls that were told to wait.")
        ended = counter("calls_held_ended_total", "Calls that waited, by how that ended.", "how")
        self.held_ended = {how: ended.labels(how) for how in HELD_ENDS}
        self.held_s = counter("calls_held_seconds_total", "Seconds that calls waited which then got a node.")
        self.active = gauge("calls_active", "1 while this process places the calls of its pool, 0 while it stands by.")
        self.pool_nodes = gauge("pool_nodes", "Nodes of the pool.")
        self.both_doors = gauge("pool_nodes_of_both_doors", "Nodes of the pool that hold pods which our scheduler placed.")
        self.tenants = gauge("tenants", "Tenants that may call.")
        self.tenants_expired = gauge("tenants_expired", "Tenants all of whose tokens have expired.")
        self.tenants_refused = counter("tenants_file_refused_total", "Changed tenants files that could not be used.")
