"""An event loop in which nobody waits: where all sleep, its clock goes on to the first that wakes. Sockets work as ever."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """Looks at sockets once and does not wait for them."""

    skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is None or timeout > 0 else timeout)
        if not ready and timeout is None:
            return super().select(0.01)  # nobody sleeps: a socket or a thread will do the next thing
        if not ready and timeout is not None and timeout > 0:
            self.skipped_s += timeout
        return ready


class FastLoop(asyncio.SelectorEventLoop):
    """Its `time` runs as fast as the machine can go from one sleep to the next."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped_s


class LoopClock:
    """The loop's own time for both kinds."""

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def run_fast(what: Coroutine[Any, Any, T]) -> T:
    """The result, after as much of the loop's time as it takes and hardly any of ours."""
    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(what)
