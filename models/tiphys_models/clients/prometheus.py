"""Instant queries, parsed off the event loop. An answer is read as a stream, and no further than its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import orjson

from tiphys_models.clients.names import NamesResolver
from tiphys_models.domain.errors import Unavailable
from tiphys_models.features.calls import FunctionProfile, profile_query
from tiphys_models.features.prometheus import ReadingTable, ReadingTableBuilder, Sample, parse_vector, profiles_of
from tiphys_models.features.schema import NODE_READINGS, busy_cores_query, idle_instances_query, idle_times_query

T = TypeVar("T")
_SMALL_BYTES = 1 << 20
"""Longer answers are read and parsed a few at a time: parsed they take ten times their length."""
_LARGE_AT_ONCE = 2
_WAIT_DEADLINES = 5
"""An answer waits for its turn so many times its deadline at most."""
_CHUNK_BYTES = 1 << 16
_SERIES_MARK = b'"metric":'
"""It begins each series of an answer; inside a label's value its quotes would be escaped."""


class AnswerTooLarge(Unavailable):
    """Prometheus has more to say than is read."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """How much of one answer is read. The defaults are for readings of a whole cluster."""

    size_bytes: int = 64 << 20
    series: int = 200_000


@dataclass(frozen=True, slots=True)
class Asker:
    """What is sent along with every query, and with those on behalf of a namespace."""

    headers: Mapping[str, str] = field(default_factory=dict)
    tenant_header: str = ""
    """Name of a header that tells the tenant; empty: none is sent."""
    tenant: str = "{namespace}"
    """Its value."""
    tenant_url: str = ""
    """Address, with {namespace}, of a proxy that shows each namespace its own series; empty: the one for everything."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Labels that series which steer must have: whoever may set these labels is believed."""

    node: Mapping[str, str] = field(default_factory=dict)
    """Of node-exporter's series."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """Of idle instances and call profiles."""


class Turns:
    """How many may have long answers in memory at once."""

    def __init__(self, at_once: int = _LARGE_AT_ONCE) -> None:
        self._free = asyncio.Semaphore(at_once)

    def turn(self) -> Turn:
        """For one who asks, once or several times."""
        return Turn(self._free)


class Turn:
    """Taken at the first long answer, given back when all that was asked has been worked off."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free, self._taking, self._mine = free, asyncio.Lock(), False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._mine:
            self._mine = False
            self._free.release()

    async def take(self) -> None:
        """Wait until it is there."""
        async with self._taking:
            if not self._mine:
                await self._free.acquire()
                self._mine = True


class PrometheusClient:
    """Reads node readings, idle instances, call profiles and raw samples from one Prometheus."""

    def __init__(
        self, url: str, *, window_s: int, node_label: str = "node", timeout_s: float = 5.0, limits: AnswerLimits | None = None,
        asker: Asker | None = None, provenance: Provenance | None = None,
    ) -> None:  # fmt: skip
        self._url = url.rstrip("/")
        self._window_s, self._node_label = window_s, node_label
        self._limits, self._asker, self._provenance = limits or AnswerLimits(), asker or Asker(), provenance or Provenance()
        self._timeout_s = timeout_s
        self._turns = Turns()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(resolver=NamesResolver())
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(), headers=dict(self._asker.headers))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def node_readings(self) -> ReadingTable:
        """All 21 readings of all nodes. A failed query leaves its column missing; Unavailable only if none answered."""
        builder = ReadingTableBuilder()
        failures: list[Unavailable] = []
        for feature in NODE_READINGS:
            try:
                query = feature.promql(self._window_s, self._node_label, self._provenance.node)
                samples = await self._query(query, (self._node_label,))
            except Unavailable as error:
                failures.append(error)
                continue
            # 5,000 samples take 2 ms to fill in: a thread keeps the loop free for prioritize calls
            await asyncio.to_thread(builder.add, feature.name, samples)
        if len(failures) == len(NODE_READINGS):
            raise failures[0]
        return await asyncio.to_thread(builder.build)

    async def busy_cores(self) -> dict[str, float]:
        """Cores in use by node, over the window; only nodes that report."""
        used = busy_cores_query(self._window_s, self._node_label, self._provenance.node)
        samples = await self._query(used, (self._node_label,))
        return {s.labels[0]: s.value for s in samples if 0 <= s.value < float("inf")}

    async def idle_instances(self) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        """Idle instances by function and node, and the time of each node's report; nothing reported gives ({}, {})."""
        # The times first: a scrape between the two queries then makes a report look older than it is, never newer. One that
        # looks newer would hide the placements since, and hand the same idle instance out twice.
        held = self._provenance.runtime
        times = await self._query(idle_times_query(self._node_label, held), (self._node_label,))
        samples = await self._query(idle_instances_query(self._node_label, held), ("function", self._node_label))
        counts: dict[str, dict[str, float]] = {}
        for sample in samples:
            function, node = sample.labels
            if sample.value >= 0:
                counts.setdefault(function, {})[node] = sample.value
        return counts, {sample.labels[0]: sample.value for sample in times}

    async def call_profiles(self) -> dict[str, FunctionProfile]:
        """What runtimes report of their functions; {} where none does."""
        return profiles_of(await self._query(profile_query(self._provenance.runtime), ("function", "quantity")))

    async def ranges(self, promql: str, namespace: str = "", turn: Turn | None = None) -> Any:
        """The whole answer to a query that selects a range of raw samples, on behalf of a namespace if one is named.

        With a turn, it is whoever gave it who says when a long answer has been worked off.
        """
        return await self._answer(promql, namespace, _decoded, turn)

    async def _query(self, promql: str, labels: Sequence[str]) -> list[Sample]:
        return await self._answer(promql, "", partial(_parsed, labels=labels), None)

    async def _answer(self, promql: str, namespace: str, parse: Callable[[bytearray], T], turn: Turn | None) -> T:
        async with self._turns.turn() as own:
            body = await self._ask(promql, namespace, turn or own)
            # counted before they are parsed: parsed they are what memory is needed for
            if body.count(_SERIES_MARK) > self._limits.series:
                raise AnswerTooLarge(f"Prometheus has more than {self._limits.series} series for one query")
            return await asyncio.to_thread(parse, body)

    async def _ask(self, promql: str, namespace: str, turn: Turn) -> bytearray:
        if self._session is None:
            raise Unavailable("the client is not open: use it in an async with block")
        url, headers = self._to(namespace)
        asked = {"query": promql, "limit": str(self._limits.series + 1)}
        try:
            # one deadline for everything up to the last byte
            async with asyncio.timeout(self._timeout_s) as deadline:
                async with self._session.post(f"{url}/api/v1/query", data=asked, headers=headers) as response:
                    body = await self._read(response, turn, deadline)
                    if response.status != 200:
                        raise Unavailable(f"Prometheus answered {response.status}: {body[:200].decode('utf-8', 'replace')}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"Prometheus at {url}: {str(error) or type(error).__name__}") from error
        return body

    def _to(self, namespace: str) -> tuple[str, dict[str, str]]:
        asker = self._asker
        if not namespace:
            return self._url, {}
        url = asker.tenant_url.format(namespace=namespace).rstrip("/") or self._url
        return url, {asker.tenant_header: asker.tenant.format(namespace=namespace)} if asker.tenant_header else {}

    async def _read(self, response: aiohttp.ClientResponse, turn: Turn, deadline: asyncio.Timeout) -> bytearray:
        body, clock = bytearray(), asyncio.get_running_loop().time
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            if len(body) <= _SMALL_BYTES < len(body) + len(chunk):
                left_s = (deadline.when() or 0.0) - clock()
                deadline.reschedule(clock() + _WAIT_DEADLINES * self._timeout_s)
                await turn.take()
                deadline.reschedule(clock() + left_s)  # the wait was not Prometheus's
            body += chunk
            if len(body) > self._limits.size_bytes:
                response.close()  # what is still to come is not read to keep the connection
                raise AnswerTooLarge(f"Prometheus sent more than {self._limits.size_bytes >> 20} MiB for one query")
        return body


def _decoded(body: bytearray) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"Prometheus sent something that is no JSON: {error!r}") from error


def _parsed(body: bytearray, labels: Sequence[str]) -> list[Sample]:
    try:
        return parse_vector(orjson.loads(body), labels)
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"Prometheus sent something that is no instant vector: {error!r}") from error
