"""The function runtime of one simulated node: containers, memory and cores, exact from event to event.

A call finds an idle container of its function (warm) or has one started (cold: a wait, then more work). Computing calls
share the node's cores by weighted max-min, weight = memory, each at most as many cores as it has threads, and no core
idles while a call could use it. Idle containers stay for a while and leave earlier when memory is needed, oldest first;
a call for which there is no memory waits its turn. Times are whatever clock the caller uses, in seconds.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tiphys_cli.demo.functions import FunctionProfile

KEEP_ALIVE_S = 600.0
"""OpenWhisk's: longer than a demo, so that containers leave by want of memory only."""
_NO_WORK = 1e-9


class Step(Enum):
    """What can happen to a call."""

    READY = "ready"
    """Its container has started, or was there: it computes from now on."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a call."""

    call: str
    step: Step
    at_s: float
    cold: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node has done since its start: integrals, so that the difference of two gives the mean between them."""

    busy_core_s: float
    runnable_s: float
    """Threads that wanted a core, times seconds."""
    cold_starts: int
    finished: int
    started_memory_bytes: int
    """Memory of all containers ever started: a measure of what was read from disk."""
    memory_bytes: int
    """Containers now, idle ones included."""


@dataclass(slots=True)
class _Container:
    call: str
    function: FunctionProfile
    cold: bool
    ready_s: float
    work_core_s: float
    announced: bool = False


@dataclass(frozen=True, slots=True)
class _Idle:
    function: str
    memory_bytes: int
    since_s: float


def core_shares(cores: float, claims: Sequence[tuple[float, float]]) -> list[float]:
    """Cores for each (weight, most cores it can use): weighted max-min, nothing left over that somebody could use."""
    shares = [0.0] * len(claims)
    weight_left = sum(weight for weight, _ in claims)
    for index in sorted(range(len(claims)), key=lambda i: claims[i][1] / claims[i][0]):
        weight, most = claims[index]
        shares[index] = min(most, cores * weight / weight_left)
        cores -= shares[index]
        weight_left -= weight
    return shares


class NodeRuntime:
    """Containers of one node. Time only moves through `advance` and `submit`."""

    def __init__(self, cores: int, memory_bytes: int, now_s: float, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self.cores, self.memory_bytes, self.keep_alive_s = cores, memory_bytes, keep_alive_s
        self._now_s = now_s
        self._busy: dict[str, _Container] = {}
        self._idle: list[_Idle] = []  # oldest first
        self._queue: deque[tuple[str, FunctionProfile]] = deque()
        self._used_bytes = 0
        self._busy_core_s = self._runnable_s = 0.0
        self._cold_starts = self._ended = self._started_bytes = 0

    # ---- what happens --------------------------------------------------------------------------------------------

    def submit(self, call: str, function: FunctionProfile, now_s: float) -> list[Event]:
        """A call has come to this node; returns what happened there until now."""
        events = self.advance(now_s)
        self._queue.append((call, function))
        self._start_waiting()
        return events + self._announce()

    def cancel(self, call: str, now_s: float) -> list[Event]:
        """A call was taken away (its pod deleted): its container goes with it."""
        events = self.advance(now_s)
        container = self._busy.pop(call, None)
        if container is not None:
            self._used_bytes -= container.function.memory_bytes
        self._queue = deque(entry for entry in self._queue if entry[0] != call)
        self._start_waiting()
        return events + self._announce()

    def advance(self, now_s: float) -> list[Event]:
        """Let time pass; returns what happened meanwhile, in order."""
        events: list[Event] = []
        while (event_s := self.next_event_s()) <= now_s:
            self._work(event_s)
            self._expire()
            events += self._announce()
            events += self._end()
            self._start_waiting()
            events += self._announce()
        if now_s > self._now_s:
            self._work(now_s)
        return events

    # ---- what can be seen ----------------------------------------------------------------------------------------

    def next_event_s(self) -> float:
        """When something changes by itself: a container is ready, a call ends, an idle container leaves. Infinite: never."""
        moments = [c.ready_s for c in self._busy.values() if c.ready_s > self._now_s]
        computing, shares = self._computing()
        moments += [self._now_s + c.work_core_s / share for c, share in zip(computing, shares, strict=True)]
        if self._idle:
            moments.append(self._idle[0].since_s + self.keep_alive_s)
        return min(moments, default=math.inf)

    def idle_instances(self) -> Mapping[str, int]:
        """Idle containers by function."""
        return Counter(idle.function for idle in self._idle)

    @property
    def inflight(self) -> int:
        """Calls on the node, waiting ones included."""
        return len(self._busy) + len(self._queue)

    def usage(self) -> Usage:
        """What the node has done so far."""
        return Usage(self._busy_core_s, self._runnable_s, self._cold_starts, self._ended, self._started_bytes, self._used_bytes)

    # ---- mechanics -----------------------------------------------------------------------------------------------

    def _computing(self) -> tuple[list[_Container], list[float]]:
        computing = [c for c in self._busy.values() if c.ready_s <= self._now_s]
        claims = [(float(c.function.memory_bytes), float(min(c.function.parallelism, self.cores))) for c in computing]
        return computing, core_shares(self.cores, claims)

    def _work(self, until_s: float) -> None:
        computing, shares = self._computing()
        span_s = until_s - self._now_s
        for container, share in zip(computing, shares, strict=True):
            container.work_core_s -= share * span_s
            self._busy_core_s += share * span_s
            self._runnable_s += min(container.function.parallelism, self.cores) * span_s
        self._now_s = until_s

    def _announce(self) -> list[Event]:
        ready = [c for c in self._busy.values() if c.ready_s <= self._now_s and not c.announced]
        for container in ready:
            container.announced = True
        return [Event(c.call, Step.READY, self._now_s, c.cold) for c in ready]

    def _end(self) -> list[Event]:
        done = [c for c in self._busy.values() if c.ready_s <= self._now_s and c.work_core_s <= _NO_WORK]
        for container in done:
            del self._busy[container.call]
            self._idle.append(_Idle(container.function.name, container.function.memory_bytes, self._now_s))
        self._ended += len(done)
        return [Event(c.call, Step.DONE, self._now_s, c.cold) for c in done]

    def _expire(self) -> None:
        while self._idle and self._idle[0].since_s + self.keep_alive_s <= self._now_s:
            self._used_bytes -= self._idle.pop(0).memory_bytes

    def _start_waiting(self) -> None:
        while self._queue:
            call, function = self._queue[0]
            if not (self._start_warm(call, function) or self._start_cold(call, function)):
                return  # first come, first served: nobody overtakes
            self._queue.popleft()

    def _start_warm(self, call: str, function: FunctionProfile) -> bool:
        for index in range(len(self._idle) - 1, -1, -1):  # the youngest: the older ones may leave
            if self._idle[index].function == function.name:
                del self._idle[index]
                self._busy[call] = _Container(call, function, False, self._now_s, function.warm_work_core_s)
                return True
        return False

    def _start_cold(self, call: str, function: FunctionProfile) -> bool:
        evictable = sum(idle.memory_bytes for idle in self._idle)
        if self._used_bytes - evictable + function.memory_bytes > self.memory_bytes:
            return False
        while self._used_bytes + function.memory_bytes > self.memory_bytes:
            self._used_bytes -= self._idle.pop(0).memory_bytes
        self._used_bytes += function.memory_bytes
        self._started_bytes += function.memory_bytes
        self._cold_starts += 1
        self._busy[call] = _Container(call, function, True, self._now_s + function.init_s, function.cold_work_core_s)
        return True
