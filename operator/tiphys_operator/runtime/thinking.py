"""Work in a thread of its own that can be ended: a decider that runs away must not keep a core, a place and its memory for ever.

Deciders may be of other packages: a planner, a selector, a scaling agent. `Thinking` asks them for all objects of a loop, with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from tiphys_models.base.clock import Clock

_AGAIN_S = 0.05
_LONGEST_END_S = 10.0
"""The time a thread has to end before it is abandoned: it may be within one call of a library, which nothing interrupts."""
_LEFT_MAX = 8
"""Threads of one decider that nothing could end, so far: then it is asked for nobody until one of them ends by itself."""
_REST_TIMES = 4.0
"""How long a decider that ran away rests, in deadlines: those whom it makes wait have the core meanwhile."""
_KEPT_MAX = 4096
Found = TypeVar("Found")


_ENDING: set[asyncio.Task[None]] = set()
"""Held here: the event loop itself forgets a task that nobody holds."""


class RanAway(BaseException):
    """Raised within a thread whose time is over. No decider's `except Exception` keeps it."""


class Overdue(TimeoutError):
    """There is no answer in time, or there would be none: the decider still thinks about an earlier question."""


class Thought(Generic[Found]):
    """One piece of work, begun when it is made."""

    def __init__(self, work: Callable[[], Found], name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Found] = self._loop.create_future()
        self.cpu_s = 0.0
        """CPU seconds of the thread once it has ended; CPU, not wall time, so that slow neighbours make no policy seem slow."""
        self._lock, self._over = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether its thread has not ended yet."""
        return self._thread.is_alive()

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

    def _run(self, work: Callable[[], Found]) -> None:
        with contextlib.suppress(RanAway):
            try:
                self._think(work)
            finally:
                with self._lock:
                    self._over = True

    def _think(self, work: Callable[[], Found]) -> None:
        try:
            found = work()
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


@dataclass(frozen=True)
class Thinks(Generic[Found]):
    """The end of a thought that came in time."""

    found: Found
    cpu_s: float
    """CPU seconds that it took."""


@dataclass(slots=True)
class _Decider:
    """A decider that has run away at least once."""

    rests_until_s: float = -math.inf
    asked: Thought[object] | None = None
    """The one thought that it may have for all who suspect it."""
    left: list[Thought[object]] = field(default_factory=list)
    """Thoughts that were given up; the threads of some may still live."""
    sound: bool = False
    """Whether it has answered somebody who suspected it since: whom it never kept waiting, need not suspect it then."""


@dataclass(slots=True)
class _Asker:
    """An object that asks, and how its last question ended."""

    decider: str
    in_time: bool
    left: Thought[object] | None = None


class Thinking:
    """Questions to deciders, one at a time for each object that asks; nobody waits for longer than the deadline.

    A decider that ran away is suspected by the object that had asked, and by all that it has never answered until it answers one of them:
    of those one asks at a time, and after a rest. Where it answers in time it goes on. Threads that nothing can end are counted, so that
    they cannot pile up.
    """

    def __init__(self, name: str, clock: Clock, longest_s: float, *, rest_times: float = _REST_TIMES) -> None:
        self._name, self._clock, self._longest_s, self._rest_s = name, clock, longest_s, rest_times * longest_s
        self._askers: OrderedDict[str, _Asker] = OrderedDict()
        self._deciders: OrderedDict[str, _Decider] = OrderedDict()

    async def ask(self, key: str, decider: str, work: Callable[[], Found]) -> Thinks[Found]:
        """What the work of the object with this key comes to, or raises; Overdue if it does not end in time, or is not begun at all."""
        suspected = self._suspected(key, decider)
        self._refuse(key, decider, suspected=suspected)
        thought = Thought(work, self._name)
        if suspected:
            self._deciders[decider].asked = cast("Thought[object]", thought)
        ended = False
        try:
            async with asyncio.timeout(self._longest_s) as deadline:
                found = await thought.result()
            ended = True
        except TimeoutError as error:
            ended = not deadline.expired()
            if ended:
                raise  # the work's own
            raise Overdue(f"{decider} took longer than {self._longest_s:.0f} s") from error
        except Exception:
            ended = True
            raise
        finally:
            self._note(key, decider, None if ended else cast("Thought[object]", thought), suspected=suspected)
        return Thinks(found, thought.cpu_s)

    def left(self) -> int:
        """Threads that were given up and still live."""
        return sum(thought.alive for decider in self._deciders.values() for thought in decider.left)

    def _suspected(self, key: str, decider: str) -> bool:
        if decider not in self._deciders:
            return False
        asker = self._askers.get(key)
        if asker is None or asker.decider != decider:
            return not self._deciders[decider].sound
        return not asker.in_time

    def _refuse(self, key: str, decider: str, *, suspected: bool) -> None:
        asker, late = self._askers.get(key), self._deciders.get(decider)
        if asker is not None and asker.decider == decider and asker.left is not None and asker.left.alive:
            raise Overdue(f"{decider} still thinks about an earlier question")
        if late is None:
            return
        late.left = [thought for thought in late.left if thought.alive]
        if len(late.left) >= _LEFT_MAX:
            raise Overdue(f"{decider} still thinks about {len(late.left)} earlier questions")
        if suspected and (self._clock.monotonic_s() < late.rests_until_s or (late.asked is not None and late.asked.alive)):
            raise Overdue(f"{decider} took longer than {self._longest_s:.0f} s: it is asked again now and then")

    def _note(self, key: str, decider: str, given_up: Thought[object] | None, *, suspected: bool) -> None:
        self._askers[key] = _Asker(decider, given_up is None, given_up)
        self._askers.move_to_end(key)
        if given_up is None and suspected and (known := self._deciders.get(decider)) is not None:
            known.sound = True
        if given_up is not None:
            late = self._deciders.setdefault(decider, _Decider())
            self._deciders.move_to_end(decider)
            late.rests_until_s = self._clock.monotonic_s() + self._rest_s
            late.left.append(given_up)
            late.sound = False
        for kept in (self._askers, self._deciders):
            if len(kept) > _KEPT_MAX:
                kept.popitem(last=False)
