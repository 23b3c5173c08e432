"""Ends a process whose event loop has stalled: a refused connection costs the scheduler nothing, a time-out 200 ms a pod."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable

EXIT_STALLED = 70
_BEATS_PER_LIMIT = 8


class Watchdog:
    """A thread that expects the loop to beat; the loop's worst lag is read from it as well."""

    def __init__(self, limit_s: float, on_stall: Callable[[], None] | None = None) -> None:
        self._limit_s = limit_s
        self._interval_s = min(0.1, limit_s / _BEATS_PER_LIMIT)
        self._beat_s = time.monotonic()
        self._worst_lag_s = 0.0
        self._stopped = threading.Event()
        self._on_stall = on_stall or _end_process

    async def beat(self) -> None:
        """Runs on the loop, until cancelled."""
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(self._interval_s)
            self._beat_s = time.monotonic()
            self._worst_lag_s = max(self._worst_lag_s, self._beat_s - asleep_s - self._interval_s)

    def start(self) -> None:
        """Start the watching thread."""
        self._beat_s = time.monotonic()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Stop watching: the loop is about to end on purpose."""
        self._stopped.set()

    def take_worst_lag_s(self) -> float:
        """The longest delay of a beat since the last call."""
        worst, self._worst_lag_s = self._worst_lag_s, 0.0
        return worst

    def _watch(self) -> None:
        asleep_s = time.monotonic()
        grace_until_s = 0.0
        while not self._stopped.wait(self._interval_s):
            now_s = time.monotonic()
            if now_s - asleep_s > self._limit_s / 2:
                # this thread did not run either: the whole process was stopped or starved, the loop deserves a fresh chance
                grace_until_s = now_s + self._limit_s
            asleep_s = now_s
            if now_s - self._beat_s > self._limit_s and now_s > grace_until_s:
                self._on_stall()
                return


def _end_process() -> None:
    # no logging here: the stalled thread may hold its lock
    os.write(sys.stderr.fileno(), b'{"level":"error","logger":"tiphys_extender.serve.watchdog","message":"event loop stalled, exiting"}\n')
    os._exit(EXIT_STALLED)
