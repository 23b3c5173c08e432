"""Asking over real sockets: who answers, who does not, and who answers something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry

from tests.operator.platforms.recorded import POD, stats
from tiphys_operator.cluster.instances import Instance
from tiphys_operator.platforms.asking import InstanceReader
from tiphys_operator.platforms.metrics import PlatformMetrics

ANSWERS = {"127.0.3.1": "idle", "127.0.3.2": "busy", "127.0.3.3": "hangs", "127.0.3.4": "long", "127.0.3.5": "moved", "127.0.3.6": "broken"}


class Proxies:
    """Queue-proxies at one port of several loopback addresses; what each does follows from its address."""

    def __init__(self) -> None:
        self.does = dict(ANSWERS)
        self.port = 0
        self.asked: list[str] = []
        self.idle_asked = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        address = request.transport.get_extra_info("sockname")[0] if request.transport is not None else ""
        self.asked.append(address)
        what = self.does[address]
        if what == "idle":
            self.idle_asked.set()
        if what == "hangs":
            await asyncio.sleep(30)
        if what == "moved":
            return web.Response(status=302, headers={"Location": f"http://127.0.3.1:{self.port}/metrics"})
        bodies = {"long": b"\x0a" * 5_000, "broken": b"<html>"}
        return web.Response(body=bodies.get(what) or stats(what if what in ("idle", "busy") else "ended"))


@asynccontextmanager
async def proxies() -> AsyncIterator[Proxies]:
    made = Proxies()
    app = web.Application()
    app.router.add_get("/metrics", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        for address in ANSWERS:
            await web.TCPSite(runner, address, made.port).start()
            made.port = runner.addresses[0][1]
        yield made
    finally:
        await runner.cleanup()


def instances(*addresses: str, pod: str = POD) -> Mapping[str, Instance]:
    return {address: Instance(pod, "shop/resize", "n0", address) for address in addresses}


def counted(metrics: PlatformMetrics) -> dict[str, float]:
    return {result: counter._value.get() for result, counter in metrics.asked.items()}


async def test_what_one_instance_does_keeps_no_other_from_being_heard() -> None:
    metrics = PlatformMetrics(CollectorRegistry())
    async with proxies() as there, InstanceReader(metrics, there.port, timeout_s=0.5) as reader:
        found = await reader.ask(instances(*ANSWERS))
    assert {address: said.idle for address, said in found.items()} == {"127.0.3.1": True, "127.0.3.2": False}
    assert counted(metrics) == {"answered": 2, "no-answer": 1, "unreadable": 3, "another-pod": 0}


async def test_an_address_that_another_pod_has_now_says_nothing_of_the_former() -> None:
    metrics = PlatformMetrics(CollectorRegistry())
    async with proxies() as there, InstanceReader(metrics, there.port) as reader:
        assert await reader.ask(instances("127.0.3.1", pod="the-former")) == {}
    assert counted(metrics)["another-pod"] == 1


async def test_a_round_ends_in_time_however_many_are_silent_and_asks_the_others_first_next_time() -> None:
    metrics = PlatformMetrics(CollectorRegistry())
    silent = {f"silent-{n}": Instance(POD, "shop/resize", "n0", "127.0.3.3") for n in range(200)}
    async with proxies() as there, InstanceReader(metrics, there.port, timeout_s=60.0, round_s=0.5) as reader:
        assert await asyncio.wait_for(reader.ask(silent), 20) == {}
        assert counted(metrics)["no-answer"] == 200
        reader._round_s = 60.0
        asking = asyncio.create_task(reader.ask({**silent, **instances("127.0.3.1")}))
        await asyncio.wait_for(there.idle_asked.wait(), 20)  # behind two hundred that answer after a minute it would be asked later
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def test_the_next_round_uses_the_same_connection() -> None:
    metrics = PlatformMetrics(CollectorRegistry())
    async with proxies() as there, InstanceReader(metrics, there.port) as reader:
        for _ in range(3):
            assert set(await reader.ask(instances("127.0.3.1"))) == {"127.0.3.1"}
        assert reader._session is not None
        connector = reader._session.connector
        assert connector is not None
        assert len(connector._conns) == 1
    assert len(there.asked) == 3
