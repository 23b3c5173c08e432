"""The loops of the process: each is started again after an error, and when it last did its work is known by name."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable

from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.clock import Clock
from tiphys_models.base.heartbeats import Heartbeats

_log = logging.getLogger(__name__)
_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 30.0
TICKER = "ticker"
TICKER_LIMIT_S = 30.0
"""Longest time between two ticks: there are two a second, and a disk is written in between."""
DEAD_AFTER_S = 120.0
"""A loop that everything needs has been silent for so long: only another process can help."""
WATCH_LIMIT_S = 240.0
"""A watch is heard of at every event, bookmark (each minute), page and failed attempt; a silent connection is given up after 75 s."""


class Loops:
    """All loops of one process. An error of a loop is its own: it is counted, logged once, and waited out."""

    def __init__(self, metrics: Metrics, clock: Clock, first_wait_s: float = _FIRST_WAIT_S) -> None:
        self._metrics, self._clock, self._first_wait_s = metrics, clock, first_wait_s
        self._beats = Heartbeats(clock)
        self._dead = Heartbeats(clock)
        self._essential = Heartbeats(clock)

    def expect(self, name: str, limit_s: float, *, essential: bool = False, fatal: bool = False) -> None:
        """Register a loop that must beat this often. Without an essential one the process is not ready, without a fatal one it is dead."""
        self._beats.expect(name, limit_s)
        if essential:
            self._essential.expect(name, limit_s)
        if fatal:
            self._dead.expect(name, max(limit_s, DEAD_AFTER_S))
        age = self._metrics.loop_age.labels(name)
        age.set_function(lambda: self._beats.ages_s().get(name, math.nan))
        self._metrics.loop_failures.labels(name)

    def beat(self, name: str) -> None:
        """The loop has done a round of its work."""
        for beats in (self._beats, self._essential, self._dead):
            beats.beat(name)

    def late(self) -> list[str]:
        """What to say of every loop that is late, essential or not."""
        return self._beats.late()

    def not_ready(self) -> list[str]:
        """What to say of essential loops that are late."""
        return self._essential.late()

    def dead(self) -> list[str]:
        """What to say of loops without which the process had better be started again."""
        return self._dead.late()

    async def keep(self, name: str, job: Callable[[], Awaitable[None]]) -> None:
        """Run the job until cancelled; its errors are counted, and it starts again after a growing wait."""
        wait_s = self._first_wait_s
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await job()
            except Exception as error:  # noqa: BLE001 - a loop has no caller that could know better: it goes on
                self._metrics.loop_failures.labels(name).inc()
                _log.exception("a loop failed, it starts again", extra={"fields": {"loop": name, "error": type(error).__name__}})
            else:
                return
            if self._clock.monotonic_s() - began_s > _LONGEST_WAIT_S:
                wait_s = self._first_wait_s  # it had worked: this is a new trouble
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
