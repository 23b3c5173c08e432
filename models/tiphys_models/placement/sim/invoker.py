"""One node of the FaaS cluster in plain Python: containers, memory and cores, exact from event to event.

A call finds an idle container of its function (warm) or has one started (cold: a wait with idle cores, then more work).
Computing calls share the node's cores by weighted max-min, weight = memory, each at most as many cores as it has threads, and no
core idles while a call could use it. Idle containers stay for a while and leave earlier when memory is needed, oldest first; a
call for which there is no memory waits its turn. Times are whatever clock the caller uses, in seconds.

The demo's nodes run on it, and so does the naive simulator that holds the compiled one to account: what is measured on the live
control plane and what is simulated follow one model. No numba: the demo must not need it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tiphys_models.placement.sim.functions import MIB, FunctionModel

_NO_WORK_CORE_S = 1e-9
_LOAD_S = 60.0
_SWITCHES_PER_S = 100.0
_SWITCHES_PER_THREAD_S = 400.0


class CallStep(Enum):
    """What can happen to a call."""

    READY = "ready"
    """The call's container has started, or was there: it computes from now on."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a call."""

    call: str
    step: CallStep
    at_s: float
    cold: bool
    begun_s: float
    """When it got its container: what came before is waiting for memory."""


@dataclass(frozen=True, slots=True)
class InvokerRules:
    """The modelling choices of one node; the default is that of the published tables."""

    keep_alive_s: float = 600.0
    """OpenWhisk's: longer than any workload, so that containers leave by want of memory only."""
    reuse: bool = True
    """Whether a container serves a second call."""
    capped: bool = False
    """Cores capped at the share of memory instead of work-conserving shares."""
    interference: float = 0.0
    """Every further call slows all of them: rate / (1 + interference * (calls - 1))."""
    image_mib: float = 0.0
    """Size of every function's image, pulled before its first start here; zero: all images are there."""
    pull_mib_per_s: float = 100.0
    images_kept_mib: float = 1e9
    """Images that the node keeps; the least recently used go."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a node has done since its start: integrals, so that the difference of two gives the mean between them."""

    busy_core_s: float
    runnable_s: float
    """Threads that wanted a core, times seconds."""
    switches: float
    cold_starts: int
    finished: int
    reads: float
    writes: float
    received_bytes: float
    sent_bytes: float
    memory_bytes: float
    """Containers now, idle ones included."""


@dataclass(slots=True)
class _Container:
    call: str
    function: FunctionModel
    cold: bool
    begun_s: float
    ready_s: float
    work_core_s: float
    announced: bool = False


@dataclass(slots=True)
class _Image:
    there_s: float
    """When its pull ends, or has ended."""
    used_s: float


@dataclass(frozen=True, slots=True)
class _Idle:
    function: FunctionModel
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


class Invoker:
    """Containers of one node. Time only moves through `advance`, `submit` and `cancel`."""

    def __init__(self, cores: float, memory_bytes: float, now_s: float, rules: InvokerRules | None = None) -> None:
        self.cores, self.memory_bytes, self.rules = cores, memory_bytes, rules or InvokerRules()
        self.load1 = 0.0
        """Threads that want a core, as a mean that forgets within a minute."""
        self._now_s = now_s
        self._busy: dict[str, _Container] = {}
        self._idle: list[_Idle] = []  # oldest first
        self._queue: deque[tuple[str, FunctionModel, float]] = deque()
        self._used_bytes = 0.0
        self._images: dict[str, _Image] = {}
        self._pulled_s = -math.inf
        """When the pulls that were asked for are over: one after the other."""
        self._busy_core_s = self._runnable_s = self._switches = 0.0
        self._cold_starts = self._ended = 0
        self._reads = self._writes = self._received = self._sent = 0.0

    # ---- what happens --------------------------------------------------------------------------------------------

    def submit(self, call: str, function: FunctionModel, now_s: float, noise: float = 1.0) -> list[Event]:
        """A call has come to this node, `noise` times the usual work; returns what happened there until now."""
        events = self.advance(now_s)
        self._queue.append((call, function, noise))
        self._start_waiting()
        return events + self._announce()

    def cancel(self, call: str, now_s: float) -> list[Event]:
        """A call was taken away (its pod deleted): its container goes with it."""
        events = self.advance(now_s)
        container = self._busy.pop(call, None)
        if container is not None:
            self._used_bytes -= _bytes(container.function)
        self._queue = deque(entry for entry in self._queue if entry[0] != call)
        self._start_waiting()
        return events + self._announce()

    def advance(self, now_s: float) -> list[Event]:
        """Let time pass; returns what happened meanwhile, in order."""
        events: list[Event] = []
        while (event_s := self.next_event_s()) <= now_s and event_s < math.inf:
            self._work(event_s)
            self._expire()
            events += self._announce()
            events += self._end()
            self._start_waiting()
            events += self._announce()
        if self._now_s < now_s < math.inf:
            self._work(now_s)
        return events

    # ---- what can be seen ----------------------------------------------------------------------------------------

    def next_event_s(self) -> float:
        """When something changes by itself: a container is ready, a call ends, an idle container leaves. Infinite: never."""
        moments = [c.ready_s for c in self._busy.values() if c.ready_s > self._now_s]
        moments += [self._now_s + max(c.work_core_s, 0.0) / rate for c, rate in self._computing()]
        if self._idle:
            moments.append(self._idle[0].since_s + self.rules.keep_alive_s)
        return min(moments, default=math.inf)

    def idle_instances(self) -> Mapping[str, int]:
        """Idle containers by function."""
        return Counter(idle.function.name for idle in self._idle)

    @property
    def unfinished(self) -> list[str]:
        """Calls on the node, those that wait for memory last."""
        return [*self._busy, *(call for call, _, _ in self._queue)]

    def usage(self) -> Usage:
        """What the node has done so far."""
        return Usage(
            self._busy_core_s, self._runnable_s, self._switches, self._cold_starts, self._ended, self._reads, self._writes,
            self._received, self._sent, self._used_bytes,
        )  # fmt: skip

    # ---- mechanics -----------------------------------------------------------------------------------------------

    def _computing(self) -> list[tuple[_Container, float]]:
        """Containers that compute, with the cores each has."""
        computing = [c for c in self._busy.values() if c.ready_s <= self._now_s]
        if self.rules.capped:
            rates = [min(float(c.function.parallelism), self.cores * _bytes(c.function) / self.memory_bytes) for c in computing]
        else:
            rates = core_shares(self.cores, [(_bytes(c.function), float(c.function.parallelism)) for c in computing])
        slower = 1.0 / (1.0 + self.rules.interference * max(len(computing) - 1, 0))
        return [(container, rate * slower) for container, rate in zip(computing, rates, strict=True)]

    def _work(self, until_s: float) -> None:
        span_s = until_s - self._now_s
        threads = 0
        for container, rate in self._computing():
            container.work_core_s -= rate * span_s
            self._busy_core_s += rate * span_s
            threads += container.function.parallelism
        self._runnable_s += threads * span_s
        fade = math.exp(-span_s / _LOAD_S)
        self.load1 = self.load1 * fade + threads * (1 - fade)
        self._switches += (_SWITCHES_PER_S + _SWITCHES_PER_THREAD_S * threads) * span_s
        self._now_s = until_s

    def _announce(self) -> list[Event]:
        ready = [c for c in self._busy.values() if c.ready_s <= self._now_s and not c.announced]
        for container in ready:
            container.announced = True
        return [self._event(container, CallStep.READY) for container in ready]

    def _end(self) -> list[Event]:
        # The second case: so little is left that the clock cannot show it.
        done = [c for c, rate in self._computing() if c.work_core_s <= _NO_WORK_CORE_S or self._now_s + c.work_core_s / rate <= self._now_s]
        for container in done:
            del self._busy[container.call]
            self._writes += container.function.disk_writes
            self._sent += container.function.net_sent_bytes
            if self.rules.reuse:
                self._idle.append(_Idle(container.function, self._now_s))
            else:
                self._used_bytes -= _bytes(container.function)
        self._ended += len(done)
        return [self._event(container, CallStep.DONE) for container in done]

    def _event(self, container: _Container, step: CallStep) -> Event:
        return Event(container.call, step, self._now_s, container.cold, container.begun_s)

    def _expire(self) -> None:
        while self._idle and self._idle[0].since_s + self.rules.keep_alive_s <= self._now_s:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._used_bytes -= _bytes(self._idle.pop(0).function)

    def _start_waiting(self) -> None:
        while self._queue:
            call, function, noise = self._queue[0]
            if not (self._start_warm(call, function, noise) or self._start_cold(call, function, noise)):
                return  # first come, first served: nobody overtakes
            self._received += function.net_received_bytes
            self._queue.popleft()

    def _start_warm(self, call: str, function: FunctionModel, noise: float) -> bool:
        for index in range(len(self._idle) - 1, -1, -1):  # the youngest: the older ones may leave
            if self._idle[index].function.name == function.name:
                del self._idle[index]
                work = function.warm_work_core_s * noise
                self._busy[call] = _Container(call, function, False, self._now_s, self._now_s, work)
                return True
        return False

    def _start_cold(self, call: str, function: FunctionModel, noise: float) -> bool:
        wanted = _bytes(function)
        if self._used_bytes - sum(_bytes(idle.function) for idle in self._idle) + wanted > self.memory_bytes:
            return False
        while self._used_bytes + wanted > self.memory_bytes:
            self._drop_oldest()
        self._used_bytes += wanted
        self._reads += function.disk_reads_cold
        self._cold_starts += 1
        ready_s = self._image_there_s(function.name) + function.init_s
        self._busy[call] = _Container(call, function, True, self._now_s, ready_s, function.cold_work_core_s * noise)
        return True

    def _image_there_s(self, name: str) -> float:
        """When the function's image is here for a container that wants to start now."""
        rules, now_s = self.rules, self._now_s
        if rules.image_mib == 0.0:
            return now_s
        known = self._images.get(name)
        if known is not None:
            known.used_s = now_s
            return max(now_s, known.there_s)
        while self._images and (len(self._images) + 1) * rules.image_mib > rules.images_kept_mib:
            del self._images[min(self._images, key=lambda other: self._images[other].used_s)]
        self._pulled_s = max(self._pulled_s, now_s) + rules.image_mib / rules.pull_mib_per_s
        self._images[name] = _Image(self._pulled_s, now_s)
        return self._pulled_s


def _bytes(function: FunctionModel) -> float:
    return function.memory_mib * float(MIB)
