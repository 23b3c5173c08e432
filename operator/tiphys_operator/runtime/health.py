"""Whether this process still does its work: what the probes answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tiphys_models.base.clock import Clock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.leases import Lease
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.kopf_watch import SeenVersions

_BEAT_S = 1.0
_LAG_LIMIT_S = 10.0
_LEASE_SEEN_LIMIT_S = 60.0


@dataclass(slots=True)
class Health:
    """Signs of life. A standby needs no watch events to be alive; a leader must list, and its watch must keep up with its lists."""

    clock: Clock
    lease: Lease
    dead_after_s: float
    watch: SeenVersions | None = None
    leading_since_s: float | None = None
    listed_s: float | None = None
    """When policies were last listed, by the monotonic clock."""
    reconciled: bool = False
    beat_s: float = field(default=0.0)
    loops: Heartbeats = field(init=False)
    """When each loop of a leader last did its work."""

    def __post_init__(self) -> None:
        self.beat_s = self.clock.monotonic_s()
        self.loops = Heartbeats(self.clock)

    def dead(self) -> list[str]:
        """Why the process should be restarted; empty while it lives."""
        now_s = self.clock.monotonic_s()
        problems = []
        if (lag_s := now_s - self.beat_s) > _LAG_LIMIT_S:
            problems.append(f"the event loop has not run for {lag_s:.0f} s")
        if self.leading_since_s is not None:
            since_s = max(self.leading_since_s, self.listed_s or 0.0)
            if now_s - since_s > self.dead_after_s:
                problems.append(f"policies could not be listed for {now_s - since_s:.0f} s")
            if self.watch is not None and self.watch.dead():
                problems.append("the watch on policies delivers nothing")
        return problems + self.loops.late(fatal_only=True)

    def unready(self) -> list[str]:
        """Why it is not useful now; empty if it leads and reconciled, or waits for the Lease; a standby has loops, too."""
        if self.leading_since_s is not None:
            return ([] if self.reconciled else ["leading, but nothing is reconciled yet"]) + self.loops.late()
        seen_s = self.lease.observed_s
        if seen_s is None or self.clock.monotonic_s() - seen_s > _LEASE_SEEN_LIMIT_S:
            return ["the Lease cannot be read"]
        return self.loops.late()


async def beat(health: Health, metrics: OperatorMetrics) -> None:
    """Show that the event loop runs, for ever."""
    while True:
        before_s = health.clock.monotonic_s()
        await asyncio.sleep(_BEAT_S)
        health.beat_s = health.clock.monotonic_s()
        metrics.loop_lag.set(max(0.0, health.beat_s - before_s - _BEAT_S))
