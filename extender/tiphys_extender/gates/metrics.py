"""Metrics of pods that may wait. Label sets are fixed and start at zero; nothing is labelled by pod, function or namespace."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tiphys_extender.serve.metrics import KINDS, Metrics
from tiphys_models.api.reasons import OpenReason

GATED_PODS = "gated-pods"
"""The watch of pods that carry the gate."""
HELD_ENDS = ("warm", "cold", "gone", "bound")
"""How waiting ended: on a warm instance; where one has to be started; because the pod is gone, or others let it go; at the bound."""
REFUSALS = ("forbidden", "changed", "throttled", "unreachable", "other")
"""Why a patch that takes off a gate failed."""
_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 12.5, 15.0, 30.0)


class GateMetrics:
    """Metrics of the gates in the extender's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tiphys_extender_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tiphys_extender_{name}", text, registry=registry)

        self.gated = gauge("gated_pods", "Pods that carry the scheduling gate, as far as this process has seen.")
        self.oldest_s = gauge("oldest_gated_seconds", "How long this process has seen the gate on the pod that carries it longest.")
        self.bound_s = gauge("gate_bound_seconds", "How long a pod may wait; 0 while this process opens no gates.")
        opened = counter("gates_opened_total", "Gates that this process took off, by why.", "reason")
        self.opened = {reason: opened.labels(str(reason)) for reason in OpenReason}
        failed = counter("gate_patches_failed_total", "Patches that failed; each is tried again while the pod carries the gate.", "reason")
        self.patches_failed = {reason: failed.labels(reason) for reason in REFUSALS}
        self.gate_s = Histogram(
            "tiphys_extender_gate_seconds", "From a gate first seen until this process took it off.", buckets=_SECONDS, registry=registry
        )
        self.held = counter("held_pods_total", "Pods that were told to wait for a warm instance.")
        ended = counter("held_ended_total", "Pods that waited, by how that ended.", "how")
        self.held_ended = {how: ended.labels(how) for how in HELD_ENDS}
        self.expected_s = counter(
            "held_expected_seconds_total", "Seconds that waiting was expected to save pods when they were first held."
        )
        self.gain_s = counter(
            "held_gain_seconds_total", "Seconds by which held pods were done sooner than was expected of them had they gone at once."
        )
        self.lost_s = counter(
            "held_lost_seconds_total", "Seconds by which held pods were done later than was expected of them had they gone at once."
        )
        self.overtaken = counter(
            "held_overtaken_total", "Pods without a gate that went to a warm instance while a pod of their function was held."
        )
        self.looks = counter("gate_looks_total", "Times that a policy was asked about a held pod.")


class ExtenderMetrics(Metrics):
    """The metrics of the extender's process; those of gates are there from the start, also where none is opened."""

    kinds = (*KINDS, GATED_PODS)

    def __init__(self) -> None:
        super().__init__()
        self.of_gates = GateMetrics(self.registry)
