"""The Prometheus client against a small real HTTP server."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.prometheus import AnswerTooLarge, Asker, PrometheusClient, Provenance, QueryLimits, QueryTurns, _parsed, _pieces
from tiphys_models.placement.gauges import parse_vector

Vector = list[tuple[dict[str, str], float]]


@asynccontextmanager
async def prometheus(answer: Callable[[str], Vector], at_s: float) -> AsyncIterator[str]:
    """Answers instant queries with vectors that carry the time of the query, as Prometheus does."""

    async def query(request: web.Request) -> web.Response:
        asked = str((await request.post())["query"])
        result: list[dict[str, Any]] = [{"metric": labels, "value": [at_s, str(value)]} for labels, value in answer(asked)]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    app = web.Application()
    app.router.add_post("/api/v1/query", query)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_idle_instances_carry_the_time_of_the_scrape_and_not_of_the_query() -> None:
    def answer(asked: str) -> Vector:
        if "timestamp(" in asked:
            return [({"node": "n0"}, 990.0), ({"node": "n1"}, 985.0)]
        return [({"node": "n0", "function": "d/f"}, 2.0), ({"node": "n1", "function": "d/f"}, 0.0)]

    async with prometheus(answer, 1000.0) as url, PrometheusClient(url, window_s=60) as client:
        counts, times = await asyncio.wait_for(client.idle_instances(), 10)
    assert counts == {"d/f": {"n0": 2.0, "n1": 0.0}}
    assert times == {"n0": 990.0, "n1": 985.0}


async def test_times_are_asked_before_counts_so_that_a_scrape_between_them_makes_no_report_too_young() -> None:
    asked_in_order: list[str] = []

    def answer(asked: str) -> Vector:
        asked_in_order.append("times" if "timestamp(" in asked else "counts")
        return []

    async with prometheus(answer, 1000.0) as url, PrometheusClient(url, window_s=60) as client:
        assert await asyncio.wait_for(client.idle_instances(), 10) == ({}, {})
    assert asked_in_order == ["times", "counts"]


async def test_cores_in_use_are_those_of_nodes_that_report_something_plausible() -> None:
    def answer(asked: str) -> Vector:
        assert 'mode!~"idle|iowait"' in asked
        return [({"node": "n0"}, 1.5), ({"node": "n1"}, -0.1), ({"node": "n2"}, float("inf"))]

    async with prometheus(answer, 1000.0) as url, PrometheusClient(url, window_s=60) as client:
        assert await asyncio.wait_for(client.busy_cores(), 10) == {"n0": 1.5}


SERIES = {"metric": {"__name__": "apiserver_request_duration_seconds_bucket", "le": "0.4", "path": "p" * 320}, "values": [[1000.0, "1"]]}


def matrix(count: int) -> bytes:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [SERIES] * count}}
    return json.dumps(answer, separators=(",", ":")).encode()


@asynccontextmanager
async def speaking(body: bytes, *, pause_s: float = 0.0, chunk: int = 1 << 16) -> AsyncIterator[tuple[str, list[Any]]]:
    """Answers everything with the same bytes, piece by piece; what it was asked and what it could send is noted."""
    noted: list[Any] = []

    async def query(request: web.Request) -> web.StreamResponse:
        noted.append({"form": dict(await request.post()), "headers": dict(request.headers), "path": request.path, "sent": 0})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError):  # whoever asked has heard enough
            for begin in range(0, len(body), chunk):
                await response.write(body[begin : begin + chunk])
                noted[-1]["sent"] += chunk
                await asyncio.sleep(pause_s)
        return response

    app = web.Application()
    app.router.add_post("/{path:.*}", query)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", noted
    finally:
        await runner.cleanup()


async def test_an_answer_of_28_megabytes_is_not_read_beyond_the_limit_and_costs_little_memory() -> None:
    body = matrix(70_000)
    assert len(body) > 28_000_000
    async with speaking(body) as (url, noted), PrometheusClient(url, window_s=60, limits=QueryLimits(2 << 20, 1000)) as client:
        tracemalloc.start()
        try:
            with pytest.raises(AnswerTooLarge, match="more than 2 MiB"):
                await asyncio.wait_for(client.ranges("up"), 10)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 12 << 20, f"{peak / 2**20:.1f} MiB"
    assert noted[0]["sent"] < 16 << 20, "the rest was never taken from the wire"


async def test_too_many_series_are_refused_before_they_are_parsed_and_prometheus_is_told_the_limit() -> None:
    async with speaking(matrix(51)) as (url, noted), PrometheusClient(url, window_s=60, limits=QueryLimits(series=50)) as client:
        with pytest.raises(AnswerTooLarge, match="more than 50 series"):
            await asyncio.wait_for(client.ranges("up"), 10)
    assert noted[0]["form"] == {"query": "up", "limit": "51"}
    async with speaking(matrix(50)) as (url, _), PrometheusClient(url, window_s=60, limits=QueryLimits(series=50)) as client:
        assert len((await asyncio.wait_for(client.ranges("up"), 10))["data"]["result"]) == 50


async def test_a_label_that_looks_like_the_beginning_of_a_series_is_counted_as_none() -> None:
    odd = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"x": '"metric":' * 9}, "values": [[1, "1"]]}]}}
    body = json.dumps(odd, separators=(",", ":")).encode()
    async with speaking(body) as (url, _), PrometheusClient(url, window_s=60, limits=QueryLimits(series=1)) as client:
        assert await asyncio.wait_for(client.ranges("up"), 10) == odd


async def test_an_answer_that_trickles_is_given_up_at_the_deadline_of_the_whole() -> None:
    async with speaking(matrix(1), pause_s=0.05, chunk=1) as (url, _), PrometheusClient(url, window_s=60, timeout_s=0.3) as client:
        began_s = time.monotonic()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await asyncio.wait_for(client.ranges("up"), 10)
        assert time.monotonic() - began_s < 3


async def test_a_long_answer_waits_until_the_one_before_is_worked_off_and_a_short_one_does_not() -> None:
    turns = QueryTurns(1)
    async with (
        speaking(matrix(5_000)) as (url, _),
        speaking(matrix(1)) as (small, _),
        PrometheusClient(url, window_s=60, timeout_s=0.5, asker=Asker(tenant_url=small)) as client,
    ):
        async with turns.turn() as first:
            await asyncio.wait_for(asyncio.gather(*(client.ranges("up", "", first) for _ in range(3))), 10)
            second = asyncio.create_task(_in_turn(client, turns))
            await asyncio.sleep(0.7)  # longer than its deadline, in which waiting does not count
            assert not second.done()
            async with turns.turn() as third:
                await asyncio.wait_for(client.ranges("up", "shop", third), 10)
            assert not second.done()
        assert await asyncio.wait_for(second, 10) == 5_000


async def _in_turn(client: PrometheusClient, turns: QueryTurns) -> int:
    async with turns.turn() as turn:
        return len((await client.ranges("up", "", turn))["data"]["result"])


async def test_whoever_waits_too_long_for_a_turn_is_told_so_and_leaves_none_taken() -> None:
    turns = QueryTurns(1)
    async with (
        speaking(matrix(5_000)) as (url, _),
        PrometheusClient(url, window_s=60, timeout_s=0.1) as client,
        turns.turn() as held,
    ):
        await held.take()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await asyncio.wait_for(_in_turn(client, turns), 10)
    async with speaking(matrix(5_000)) as (url, _), PrometheusClient(url, window_s=60) as client:
        assert await asyncio.wait_for(_in_turn(client, turns), 10) == 5_000


async def test_a_namespace_is_told_in_the_header_and_asked_at_its_own_address() -> None:
    async with speaking(matrix(1)) as (url, noted):
        asker = Asker({"X-Team": "platform"}, "X-Scope-OrgID", "{namespace}|kubelets", f"{url}/tenants/{{namespace}}/")
        async with PrometheusClient(url, window_s=60, asker=asker) as client:
            await asyncio.wait_for(client.ranges("up", "shop"), 10)
            await asyncio.wait_for(client.ranges("up"), 10)
    own, whole = noted
    assert own["path"] == "/tenants/shop/api/v1/query"
    assert (own["headers"]["X-Scope-OrgID"], own["headers"]["X-Team"]) == ("shop|kubelets", "platform")
    assert whole["path"] == "/api/v1/query"
    assert whole["headers"]["X-Team"] == "platform"
    assert "X-Scope-OrgID" not in whole["headers"]


async def test_series_that_steer_can_be_held_to_labels_whatever_these_contain() -> None:
    asked: list[str] = []

    def answer(query: str) -> Vector:
        asked.append(query)
        return []

    provenance = Provenance(node={"job": "node-exporter"}, runtime={"namespace": 'faas"} or vector(1) #\n'})
    async with prometheus(answer, 1000.0) as url, PrometheusClient(url, window_s=60, provenance=provenance) as client:
        await asyncio.wait_for(client.node_readings(), 10)
        await asyncio.wait_for(client.busy_cores(), 10)
        assert all('{job="node-exporter"' in query for query in asked)
        asked.clear()
        await asyncio.wait_for(client.idle_instances(), 10)
        await asyncio.wait_for(client.call_profiles(), 10)
    assert all(r'{namespace="faas\"} or vector(1) #\n"}' in query for query in asked)
    assert len(asked) == 3


async def test_a_long_answer_is_parsed_in_pieces_to_the_same_samples() -> None:
    labels = [{"metric": "x" * 100, "node": f"n{index}", "function": 'a/{"metric":{'} for index in range(3_000)]
    series = [{"metric": one, "value": [7.5, str(index)]} for index, one in enumerate(labels)]
    answer = {"status": "success", "data": {"resultType": "vector", "result": series}, "warnings": ['{"metric":{']}
    body = bytearray(json.dumps(answer, separators=(",", ":")).encode())
    assert len(list(_pieces(body))) > 3
    assert _parsed(body, ("function", "node")) == parse_vector(answer, ("function", "node"))


async def test_a_long_answer_that_is_no_vector_is_refused_as_a_short_one() -> None:
    series = [{"metric": {"node": "n" * 100}, "value": [7.5, "1"]}] * 5_000
    for changed in ({"status": "error"}, {"data": {"resultType": "matrix", "result": series}}):
        answer = {"status": "success", "data": {"resultType": "vector", "result": series}, **changed}
        with pytest.raises(Unavailable):
            _parsed(bytearray(json.dumps(answer, separators=(",", ":")).encode()), ("node",))
