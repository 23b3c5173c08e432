"""Idle instances as every function runtime reports them to Prometheus, and how asking for them went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tiphys_models.base.clock import Clock, SystemClock
from tiphys_models.placement.schema import IDLE_AGE, IDLE_INSTANCES
from tiphys_operator.platforms.counting import NodeReport


class PlatformMetrics:
    """Into the operator's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        asked = Counter(
            "tiphys_operator_instances_asked", "Instances asked whether they are idle, by answer.", ["result"], registry=registry
        )
        self.asked = {result: asked.labels(result) for result in ("answered", "no-answer", "unreadable", "another-pod")}
        self._idle = _IdleInstances()
        registry.register(self._idle)

    def show(self, nodes: Mapping[str, NodeReport], clock: Clock, node_label: str) -> None:
        """The reports are shown from now on as they are then; their age is that of the moment at which they are read."""
        self._idle.nodes, self._idle.clock, self._idle.node_label = nodes, clock, node_label


class _IdleInstances(Collector):
    """Read when Prometheus asks: an age that a loop had to write itself would stand still with it."""

    def __init__(self) -> None:
        self.nodes: Mapping[str, NodeReport] = {}
        self.clock: Clock = SystemClock()
        self.node_label = "node"

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        """Two gauges without a sample: what there is to know of them before anybody asks."""
        counts = "Instances, by node and function, in which no request is in progress: Knative's, where the operator asks for them."
        ages = "How old, at the scrape, what is said of a node's idle instances is."
        labels = [self.node_label, "function"]
        return GaugeMetricFamily(IDLE_INSTANCES, counts, labels=labels), GaugeMetricFamily(IDLE_AGE, ages, labels=labels[:1])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The counts, and how old they are."""
        counts, ages = self.describe()
        now_s = self.clock.monotonic_s()
        for node, report in self.nodes.items():
            ages.add_metric([node], now_s - report.sampled_s)
            for function, count in report.counts.items():
                counts.add_metric([node, function], count)
        yield counts
        yield ages
