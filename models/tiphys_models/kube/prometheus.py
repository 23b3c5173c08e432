"""Instant queries, parsed off the event loop. An answer is read as a stream, and no further than its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import orjson

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import NamesResolver
from tiphys_models.placement.calls import FunctionProfile, profile_query
from tiphys_models.placement.gauges import ReadingTable, ReadingTableBuilder, Sample, parse_vector, profiles_of
from tiphys_models.placement.pod_cpu import POD_CPU_LABELS, CpuReading, pod_cpu_query, pod_cpu_readings
from tiphys_models.placement.schema import NODE_READINGS, busy_cores_query, idle_instances_query, idle_times_query

T = TypeVar("T")
_SMALL_BYTES = 1 << 20
"""Longer answers are read and parsed a few at a time: parsed they take ten times their length."""
_SHORT_BYTES = 1 << 15
_LARGE_AT_ONCE = 2
_WAIT_DEADLINES = 5
"""An answer waits for its turn so many times its deadline at most."""
_CHUNK_BYTES = 1 << 16
_SERIES_MARK = b'"metric":'
"""It begins each series of an answer; inside a label's value its quotes would be escaped."""


_SERIES_START = b'{"metric":{'  # a label may be called metric, too, but its value is a string
_PIECE_BYTES = 1 << 17


class AnswerTooLarge(Unavailable):
    """Prometheus has more to say than is read."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
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
    """Value of that header; {namespace} is replaced."""
    tenant_url: str = ""
    """Address, with {namespace}, of a proxy that shows each namespace its own series; empty: the one for everything."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Labels that series which steer must have: whoever may set these labels is believed."""

    node: Mapping[str, str] = field(default_factory=dict)
    """Labels that node-exporter's series must have."""
    runtime: Mapping[str, str] = field(default_factory=dict)
    """Labels that the series of idle instances and call profiles must have."""


class QueryTurns:
    """How many may have long answers in memory at once."""

    def __init__(self, at_once: int = _LARGE_AT_ONCE) -> None:
        self._free = asyncio.Semaphore(at_once)

    def turn(self) -> Turn:
        """A turn for one caller, who may ask once or several times within it."""
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
    """Reads node readings, idle instances, call profiles, processor time of pods and raw samples from one Prometheus."""

    def __init__(
        self, url: str, *, window_s: int, node_label: str = "node", timeout_s: float = 5.0, limits: QueryLimits | None = None,
        asker: Asker | None = None, provenance: Provenance | None = None,
    ) -> None:  # fmt: skip
        self._url = url.rstrip("/")
        self._window_s, self._node_label = window_s, node_label
        self._limits, self._asker, self._provenance = limits or QueryLimits(), asker or Asker(), provenance or Provenance()
        self._timeout_s = timeout_s
        self._turns = QueryTurns()
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
        # 100,000 series take 50 ms to sort: a thread keeps the loop free
        return await asyncio.to_thread(_by_function, samples, times)

    async def call_profiles(self) -> dict[str, FunctionProfile]:
        """What runtimes report of their functions; {} where none does."""
        samples = await self._query(profile_query(self._provenance.runtime), ("function", "quantity"))
        return await asyncio.to_thread(profiles_of, samples)

    async def pod_cpu(self, series: str, namespaces: Set[str], now_s: float) -> list[CpuReading]:
        """Processor time of the pods of these namespaces, with the time of its samples by the clock that says it is now."""
        samples = await self._query(pod_cpu_query(series, namespaces), POD_CPU_LABELS)
        # 10,000 pods take 40 ms to read: a thread keeps the loop free
        return await asyncio.to_thread(pod_cpu_readings, samples, now_s)

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
            # a thread takes longer to begin than a short answer to be parsed
            return parse(body) if len(body) <= _SHORT_BYTES else await asyncio.to_thread(parse, body)

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


def _by_function(samples: list[Sample], times: list[Sample]) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    counts: dict[str, dict[str, float]] = {}
    for sample in samples:
        function, node = sample.labels
        if sample.value >= 0:
            counts.setdefault(function, {})[node] = sample.value
    return counts, {sample.labels[0]: sample.value for sample in times}


def _parsed(body: bytearray, labels: Sequence[str]) -> list[Sample]:
    try:
        return [sample for answer in _pieces(body) for sample in parse_vector(answer, labels)]
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"Prometheus sent something that is no instant vector: {error!r}") from error


def _pieces(body: bytearray) -> Iterator[Any]:
    """A long answer as several with some series each, in order: parsed at once it would take ten times its length.

    A series that begins with its metric, as Prometheus writes it, can be told by its bytes: inside a string the quotes are escaped.
    """
    starts = _starts(body)
    if len(starts) <= 1:
        yield orjson.loads(body)
        return
    head = bytes(body[: starts[0]])
    tail = orjson.loads(head + body[starts[-1] :])  # the last series with all around it says what kind of answer this is
    for start, end in pairwise(starts):
        series = bytes(body[start:end]).rstrip(b", \r\n\t")
        yield {**tail, "data": {**tail["data"], "result": orjson.loads(b"[" + series + b"]")}}
    yield tail


def _starts(body: bytearray) -> list[int]:
    """Where pieces begin; each is long enough to be worth it, and the last one is a single series or a few."""
    starts, at = [], body.find(_SERIES_START)
    while at >= 0:
        starts.append(at)
        at = body.find(_SERIES_START, at + _PIECE_BYTES)
    return starts
