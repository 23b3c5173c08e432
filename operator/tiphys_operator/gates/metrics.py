"""What the second opener tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class GateMetrics:
    """Into the operator's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        p = "tiphys_operator"
        self.opened = Counter(f"{p}_gates_opened", "Pods that the operator let go: the extender did not in time.", registry=registry)
        self.failed = Counter(f"{p}_gates_failed", "Tries to let a pod go that came to nothing, and are repeated.", registry=registry)
        self.held = Gauge(f"{p}_gated_pods", "Pods that wait, held by our scheduling gate.", registry=registry)
        self.oldest = Gauge(f"{p}_oldest_gated_seconds", "How long the operator has seen one of them held; 0: nobody.", registry=registry)
        self.bound = Gauge(f"{p}_gate_bound_seconds", "The bound that it was told; it comes 3 s later.", registry=registry)
