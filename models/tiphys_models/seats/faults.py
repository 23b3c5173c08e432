"""What cannot be used of other packages, as a metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tiphys_models.seats.registry import Registry


class FaultCollector(Collector):
    """Counted when Prometheus asks: a package may turn out to be broken when its decider is first made."""

    def __init__(self, service: str, registries: Sequence[Registry[Any]]) -> None:
        self._service, self._registries = service, registries

    def describe(self) -> list[GaugeMetricFamily]:
        """The name alone: to count is to look at every installed package."""
        return [self._family()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One gauge by kind, every kind from the start; the log and `tiphys policies` say which and why."""
        family = self._family()
        for registry in self._registries:
            family.add_metric([registry.kind], len(registry.faults()))
        yield family

    def _family(self) -> GaugeMetricFamily:
        text = "Deciders of other packages that cannot be used, by kind."
        return GaugeMetricFamily(f"tiphys_{self._service}_unusable_deciders", text, labels=["kind"])
