"""The demo reads the extender's decisions from where it began."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.extender.test_decisions import record
from tiphys_cli.kube.errors import ClusterError
from tiphys_extender.placement.decisions import DecisionLog as Log
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.seats.pages import page_of
from tiphys_testbed.demo.decisions import DecisionTail


async def test_only_decisions_made_since_the_demo_began_are_read_each_once_and_gaps_are_counted() -> None:
    kept = Log(5, Metrics())

    async def decisions(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        return web.Response(body=page_of(kept, request.query["after"], request.query["limit"]))

    app = web.Application()
    app.router.add_get("/v1/decisions", decisions)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        for index in range(3):
            kept.append(record(f"before-{index}"))
        log = DecisionTail(url, "secret")
        await log.skip()
        kept.append(record("mine"))
        assert [(decision.pod, decision.best) for decision in await log.read()] == [("pod-mine", "n0")]
        assert await log.read() == []
        for index in range(8):
            kept.append(record(f"many-{index}"))
        assert (len(await log.read()), log.lost) == (5, 3)
        with pytest.raises(ClusterError, match="answered 401"):
            await DecisionTail(url, "guess").read()
    finally:
        await asyncio.wait_for(runner.cleanup(), 5)
