"""Asks the instances of a function platform, every few seconds, whether they are idle, and shows Prometheus what they said."""

from __future__ import annotations

import asyncio

from tiphys_models.base.clock import Clock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.platforms.asking import InstanceReader
from tiphys_operator.platforms.counting import IdleCounts, LastCalls
from tiphys_operator.platforms.knative import PERIOD_S
from tiphys_operator.platforms.metrics import PlatformMetrics

LOOP = "platforms"
_LATE_S = 60.0


class PlatformsController:
    """The leader's alone: two that ask would count every instance twice."""

    def __init__(
        self, watch: ClusterWatch, reader: InstanceReader, metrics: PlatformMetrics, clock: Clock, *,
        interval_s: float, node_label: str, beats: Heartbeats,
    ) -> None:  # fmt: skip
        self._watch, self._reader, self._clock, self._interval_s, self._beats = watch, reader, clock, interval_s, beats
        self._counts = IdleCounts()
        self.calls = LastCalls()
        # before anybody begins to watch pods: those that were seen already would be no instances
        watch.observed.keeps_instances = True
        metrics.show(self._counts.nodes, clock, node_label)

    async def run(self) -> None:
        """Rounds, until the task is cancelled."""
        self._beats.expect(LOOP, _LATE_S + self._interval_s)
        try:
            await self._watch.ready()
            async with self._reader:
                while True:
                    began_s = self._clock.monotonic_s()
                    await self.round()
                    self._beats.beat(LOOP)
                    await asyncio.sleep(max(self._interval_s - (self._clock.monotonic_s() - began_s), 0.1))
        finally:
            self._beats.forget(LOOP)

    async def round(self) -> None:
        """All instances are asked once. What they say is of the second before: it counts as of that second's begin."""
        instances, began_s = dict(self._watch.observed.instances), self._clock.monotonic_s()
        stats = await self._reader.ask(instances)
        idle = {uid: found.idle for uid, found in stats.items()}
        self.calls.round(idle, self._clock.monotonic_s())
        self._counts.round(instances, idle, began_s - PERIOD_S, self._clock.monotonic_s())
