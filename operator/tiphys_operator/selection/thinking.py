"""Work in a thread of its own that can be ended: a planner that runs away must not keep a core, a place and its memory for ever."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_AGAIN_S = 0.05
_LONGEST_END_S = 10.0
"""The time a thread has to end before it is abandoned: it may be within one call of a library, which nothing interrupts."""
Found = TypeVar("Found")


_ENDING: set[asyncio.Task[None]] = set()
"""Held here: the event loop itself forgets a task that nobody holds."""


class RanAway(BaseException):
    """Raised within a thread whose time is over. No planner's `except Exception` keeps it."""


class Thought(Generic[Found]):
    """One piece of work, begun when it is made."""

    def __init__(self, work: Callable[[], Found], name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Found] = self._loop.create_future()
        self._work = work
        self.cpu_s = 0.0
        """CPU seconds of the thread once it has ended; CPU, not wall time, so that slow neighbours make no policy seem slow."""
        self._lock, self._over = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    async def result(self) -> Found:
        """What the work returns or raises; once nobody waits for it any more, the thread is ended."""
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            if self._end():
                ending = asyncio.create_task(self._insist())
                _ENDING.add(ending)
                ending.add_done_callback(_ENDING.discard)
            raise

    async def _insist(self) -> None:
        end_s = time.monotonic() + _LONGEST_END_S
        while time.monotonic() < end_s and self._end():  # noqa: ASYNC110 - a thread sets no event while it runs away
            await asyncio.sleep(_AGAIN_S)

    def _end(self) -> bool:
        """Tell the thread to end, if it has not: the one way from outside, and it comes between two steps of Python code."""
        with self._lock:  # a thread that has ended leaves its number to the next one, who must not be hit
            if not self._over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(RanAway))
            return not self._over

    def _run(self) -> None:
        with contextlib.suppress(RanAway):
            try:
                self._think()
            finally:
                with self._lock:
                    self._over = True

    def _think(self) -> None:
        try:
            found = self._work()
        except RanAway:
            return
        except BaseException as error:  # noqa: BLE001 - whatever it is, who waits has to hear of it
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, found)

    def _tell(self, how: Callable[..., None], what: object) -> None:
        cpu_s = time.thread_time()
        try:
            self._loop.call_soon_threadsafe(how, what, cpu_s)
        except RuntimeError:
            return  # the loop has ended, and with it all who waited

    def _succeed(self, found: Found, cpu_s: float) -> None:
        self.cpu_s = cpu_s
        if not self._ended.done():
            self._ended.set_result(found)

    def _fail(self, error: BaseException, cpu_s: float) -> None:
        self.cpu_s = cpu_s
        if not self._ended.done():
            self._ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            self._ended.exception()  # it was looked at, should nobody wait any more
