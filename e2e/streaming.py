"""Clients of streams: they bind over HTTP, send their queries to the endpoint they are given, and renew with what became of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a token on one binder."""

    session: aiohttp.ClientSession
    port: int
    token: str

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and answer of a path below /v1/bindings."""
        url, headers = f"http://127.0.0.1:{self.port}/v1/bindings{path}", {"Authorization": f"Bearer {self.token}"}
        async with self.session.request(method, url, json=body, headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def calling(port: int, token: str) -> AsyncIterator[Caller]:
    """Connections as many as are wanted."""
    async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield Caller(session, port, token)


async def insist(
    callers: Sequence[Caller], method: str, path: str, body: Any, over: asyncio.Event | None = None
) -> tuple[int, dict[str, Any]]:
    """As a client does: at one binder after the other, again and again, until one says what does not pass, or all is over."""
    while True:
        for caller in callers:
            try:
                status, answer = await caller.ask(method, path, body)
            except (aiohttp.ClientError, TimeoutError):
                continue
            if status not in (429, 503) or (status == 429 and over is not None and over.is_set()):
                return status, answer
        await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Held:
    """Streams of one access site that are renewed, and send nothing."""

    callers: tuple[Caller, ...]
    leases: dict[str, str] = field(default_factory=dict)

    async def renew_until(self, over: asyncio.Event) -> None:
        """Every other second, all of them."""
        while not over.is_set():
            for uid, lease in list(self.leases.items()):
                status, answer = await insist(self.callers, "POST", f"/{uid}/renew", {"lease": lease})
                if uid in self.leases:  # it may have been released meanwhile
                    assert status == 200, answer
                    self.leases[uid] = answer["lease"]
            await asyncio.sleep(2.0)

    async def release(self, uid: str) -> None:
        """It is over."""
        del self.leases[uid]
        status, answer = await insist(self.callers, "DELETE", f"/{uid}", None)
        assert (status, answer["released"]) == (200, True), answer


@dataclass(frozen=True, slots=True)
class Stream:
    """What one client wants."""

    name: str
    rate_qps: float
    max_delay_ms: float
    min_accuracy: float

    def body(self) -> dict[str, Any]:
        """Of POST /v1/bindings."""
        return {
            "task": "detect",
            "maxDelayMs": self.max_delay_ms,
            "minAccuracy": self.min_accuracy,
            "rateQps": self.rate_qps,
            "sizeKb": 40,
            "bitRateMbps": 1000,
            "application": self.name,
        }


@dataclass(slots=True)
class Played:
    """What became of the streams of one run."""

    sent: int = 0
    """Queries of all streams, of those too that were not bound."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """served, late, refused, rejected."""
    bound: Counter[str] = field(default_factory=Counter)
    """By kind of stream and site."""

    @property
    def success(self) -> float:
        """Share of all queries that were answered in time."""
        return self.outcomes["served"] / self.sent


async def play(caller: Caller, streams: list[Stream], life_s: float) -> Played:
    """Bind one after the other, let all live at the same time, release all."""
    played = Played()
    bound: list[tuple[Stream, dict[str, Any]]] = []
    for stream in streams:
        status, answer = await caller.ask("POST", "", stream.body())
        assert status in (201, 422, 429), answer
        played.sent += round(stream.rate_qps * life_s)
        if status == 201:
            bound.append((stream, answer))
            played.bound[f"{stream.name}@{answer['site']}"] += 1
        else:
            played.outcomes["rejected"] += round(stream.rate_qps * life_s)
    lives = [_live(caller, stream, answer, index / len(bound), life_s) for index, (stream, answer) in enumerate(bound)]
    for counts in await asyncio.gather(*lives):
        played.outcomes.update(counts)
    return played


async def _live(caller: Caller, stream: Stream, answer: dict[str, Any], phase: float, life_s: float) -> Counter[str]:
    """Queries at an even pace, whether earlier ones were answered or not."""
    start_s = time.monotonic() + phase / stream.rate_qps
    queries = []
    for number in range(round(stream.rate_qps * life_s)):
        await asyncio.sleep(start_s + number / stream.rate_qps - time.monotonic())
        queries.append(asyncio.create_task(_query(caller.session, answer["endpoint"], stream.max_delay_ms)))
    counts = Counter(await asyncio.gather(*queries))
    status, said = await caller.ask("DELETE", f"/{answer['id']}", {name: counts[name] for name in ("served", "late", "refused")})
    assert (status, said["released"]) == (200, True), said
    return counts


async def _query(session: aiohttp.ClientSession, endpoint: str, max_delay_ms: float) -> str:
    began_s = time.monotonic()
    try:
        async with session.post(endpoint, data=b"a frame") as response:
            await response.read()
            if response.status != 200:
                return "refused"
    except (aiohttp.ClientError, TimeoutError):
        return "refused"
    return "served" if (time.monotonic() - began_s) * 1000 <= max_delay_ms else "late"
