"""What happens once a second: time passes for reservations, models and certificates are looked at, gauges and the log are written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tiphys_extender.model_store import ModelStore
from tiphys_extender.placement.answer import Answerer
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decision_file import DecisionFile
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.readings import coverage
from tiphys_extender.serve.loops import TICKER, TICKER_LIMIT_S, Loops
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.watchdog import Watchdog
from tiphys_extender.watches import Watches
from tiphys_models.base.clock import Clock
from tiphys_models.serving.certificates import ServerCertificates

_PERIOD_S = 0.5
_TICKS_PER_RESCAN = 4


class Ticker:
    """The slow work of the loop, in small pieces."""

    def __init__(
        self,
        world: World,
        decisions: DecisionLog,
        metrics: Metrics,
        models: ModelStore,
        answerer: Answerer,
        watchdog: Watchdog,
        clock: Clock,
        loops: Loops | None = None,
    ) -> None:
        self._world, self._decisions, self._metrics, self._models = world, decisions, metrics, models
        self._answerer, self._watchdog, self._clock = answerer, watchdog, clock
        self._loops = loops or Loops(metrics, clock)
        self._loops.expect(TICKER, TICKER_LIMIT_S, essential=True, fatal=True)
        self.watches: Watches | None = None
        self.certificates: Sequence[ServerCertificates] = ()
        self.file: DecisionFile | None = None
        self._ticks = 0
        self._evicted: dict[str, int] = {}

    async def run(self) -> None:
        """Tick every half a second until cancelled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self.tick()

    async def tick(self) -> None:
        """Do the regular work of the loop once."""
        metrics, state, now_s = self._metrics, self._world.state, self._clock.now_s()
        if (lapsed := state.expire(now_s)) > 0:
            metrics.reservations_expired.inc(lapsed)
        metrics.reservations.set(state.reservations)
        self._show_stores()
        metrics.busiest_share.set(self._answerer.busiest_share)
        metrics.readings_coverage.set(coverage(state, now_s))
        metrics.loop_lag.set(self._watchdog.take_worst_lag_s())
        if self.watches is not None:
            self.watches.publish()
        if self._ticks % _TICKS_PER_RESCAN == 0:
            await self._models.rescan()
            for certificates in self.certificates:
                certificates.reload_if_changed()
        await self.flush()
        self._ticks += 1
        self._loops.beat(TICKER)

    def _show_stores(self) -> None:
        state = self._world.state
        for store, entries in state.kept.items():
            self._metrics.kept[store].set(entries)
        for store, evicted in state.evicted.items():
            self._metrics.evicted[store].inc(evicted - self._evicted.get(store, 0))
        self._evicted = state.evicted

    async def flush(self) -> None:
        """Write new decisions to disk; without a disk they only leave the list of what is new."""
        changes = self._decisions.take_changes()
        if self.file is None or not changes:
            return
        lost = await asyncio.to_thread(self.file.write, changes)
        if lost:
            self._metrics.log_dropped.inc(lost)
