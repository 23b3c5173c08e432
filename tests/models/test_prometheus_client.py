"""The Prometheus client against a small real HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tiphys_models.clients.prometheus import PrometheusClient

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
