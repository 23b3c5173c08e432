"""An open-loop load: requests leave when they are due, whatever became of the earlier ones, and are timed from when they were due.

So a service that stalls is charged for everybody who would have come meanwhile (no coordinated omission). Whoever gets no good answer
within the time-out is late for good.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

TIME_OUT_S = 6.0
"""Above the time after which services give a request up."""
_BEHIND_S = 0.25
"""A generator that itself is later than this is no measurement."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request that was sent, with its times."""

    due_s: float
    """After the load's begin."""
    latency_s: float
    """Seconds from when it was due to the last byte of its answer; infinite without a good answer."""
    behind_s: float
    """How much later than due it left: the generator's own delay, part of the latency."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Latencies in buckets that each are `ratio` wider than the last: any quantile within that error, whatever the range."""

    counts: dict[int, int]
    never: int
    """Requests without a good answer."""
    ratio: float = 1.05

    @property
    def total(self) -> int:
        """The number of all requests."""
        return sum(self.counts.values()) + self.never

    def quantile(self, share: float) -> float:
        """Upper edge of the bucket that holds it; infinite where so many were never answered; NaN of nothing."""
        if not self.total:
            return math.nan
        wanted, seen = math.ceil(share * self.total), 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                return float(self.ratio**index)
        return math.inf


def histogram(latencies_s: Sequence[float], ratio: float = 1.05) -> Histogram:
    """The histogram of these latencies."""
    counts: dict[int, int] = {}
    for latency_s in latencies_s:
        if math.isfinite(latency_s):
            index = math.ceil(math.log(max(latency_s, 1e-6)) / math.log(ratio) - 1e-9)
            counts[index] = counts.get(index, 0) + 1
    return Histogram(counts, sum(not math.isfinite(latency_s) for latency_s in latencies_s), ratio)


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """Requests that were due in it, whenever they ended."""

    requests: int
    good: int
    p90_s: float

    def kept(self, percentile: float) -> bool:
        """Whether that share of them was good; nobody to serve is kept."""
        return self.good >= percentile * self.requests - 1e-9


def windows(sent: Sequence[Sent], length_s: float, count: int, target_s: float) -> list[LoadWindow]:
    """The first `count` windows of this length."""
    latencies: list[list[float]] = [[] for _ in range(count)]
    for each in sent:
        number = int(each.due_s // length_s)
        if 0 <= number < count:
            latencies[number].append(each.latency_s)
    return [LoadWindow(len(found), sum(x <= target_s for x in found), histogram(found).quantile(0.9)) for found in latencies]


async def play(due_s: Sequence[float], addresses: Sequence[tuple[str, int]], path: str, time_out_s: float = TIME_OUT_S) -> list[Sent]:
    """Every request at its time, to the addresses in turn, each on a connection of its own. In the order they were due."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    tasks = []
    for number, due in enumerate(sorted(due_s)):
        if (wait_s := begin_s + due - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        host, port = addresses[number % len(addresses)]
        tasks.append(asyncio.create_task(_request(host, port, path, begin_s, due, time_out_s)))
    return list(await asyncio.gather(*tasks))


def fell_behind(sent: Sequence[Sent]) -> float:
    """Share of requests that left notably late: where it is not small, the generator was the bottleneck."""
    return sum(each.behind_s > _BEHIND_S for each in sent) / max(len(sent), 1)


async def _request(host: str, port: int, path: str, begin_s: float, due_s: float, time_out_s: float) -> Sent:
    loop = asyncio.get_running_loop()
    behind_s = loop.time() - begin_s - due_s
    try:
        async with asyncio.timeout_at(begin_s + due_s + time_out_s):
            good = await _good(host, port, path)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        good = False
    return Sent(due_s, loop.time() - begin_s - due_s if good else math.inf, behind_s)


async def _good(host: str, port: int, path: str) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        return answer.startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()
