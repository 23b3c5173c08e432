"""Instant queries, one at a time, parsed off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from tiphys_models.domain.errors import Unavailable
from tiphys_models.features.calls import PROFILE_QUERY, FunctionProfile
from tiphys_models.features.prometheus import ReadingTable, ReadingTableBuilder, Sample, parse_vector, profiles_of
from tiphys_models.features.schema import IDLE_INSTANCES_QUERY, IDLE_TIMES_QUERY, NODE_READINGS


class PrometheusClient:
    """Reads node readings, idle instances, call profiles and raw samples from one Prometheus."""

    def __init__(self, url: str, *, window_s: int, node_label: str = "node", timeout_s: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._window_s, self._node_label = window_s, node_label
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=self._timeout)
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
                samples = await self._query(feature.promql(self._window_s, self._node_label), (self._node_label,))
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
        used = f'sum by ({self._node_label}) (rate(node_cpu_seconds_total{{mode!~"idle|iowait"}}[{self._window_s}s]))'
        samples = await self._query(used, (self._node_label,))
        return {s.labels[0]: s.value for s in samples if 0 <= s.value < float("inf")}

    async def idle_instances(self) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
        """Idle instances by function and node, and the time of each node's report; nothing reported gives ({}, {})."""
        # The times first: a scrape between the two queries then makes a report look older than it is, never newer. One that
        # looks newer would hide the placements since, and hand the same idle instance out twice.
        times = await self._query(IDLE_TIMES_QUERY.format(node_label=self._node_label), (self._node_label,))
        samples = await self._query(IDLE_INSTANCES_QUERY.format(node_label=self._node_label), ("function", self._node_label))
        counts: dict[str, dict[str, float]] = {}
        for sample in samples:
            function, node = sample.labels
            if sample.value >= 0:
                counts.setdefault(function, {})[node] = sample.value
        return counts, {sample.labels[0]: sample.value for sample in times}

    async def call_profiles(self) -> dict[str, FunctionProfile]:
        """What runtimes report of their functions; {} where none does."""
        return profiles_of(await self._query(PROFILE_QUERY, ("function", "quantity")))

    async def ranges(self, promql: str) -> Any:
        """The whole answer to a query that selects a range of raw samples."""
        body = await self._ask(promql)
        try:
            return await asyncio.to_thread(orjson.loads, body)
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"Prometheus sent something that is no JSON: {error!r}") from error

    async def _query(self, promql: str, labels: Sequence[str]) -> list[Sample]:
        return await asyncio.to_thread(_parsed, await self._ask(promql), labels)

    async def _ask(self, promql: str) -> bytes:
        if self._session is None:
            raise Unavailable("the client is not open: use it in an async with block")
        try:
            async with self._session.post(f"{self._url}/api/v1/query", data={"query": promql}) as response:
                body = await response.read()
                if response.status != 200:
                    raise Unavailable(f"Prometheus answered {response.status}: {body[:200].decode('utf-8', 'replace')}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"Prometheus at {self._url}: {error or type(error).__name__}") from error
        return body


def _parsed(body: bytes, labels: Sequence[str]) -> list[Sample]:
    try:
        answer: Any = orjson.loads(body)
        return parse_vector(answer, labels)
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"Prometheus sent something that is no instant vector: {error!r}") from error
