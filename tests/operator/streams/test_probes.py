"""Against real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tiphys_models.api.inference_site import Probe
from tiphys_models.base.errors import Unavailable
from tiphys_operator.networks import networks_of
from tiphys_operator.streams.addresses import AddressRules
from tiphys_operator.streams.probes import Probes

HERE = AddressRules(allow=networks_of("127.0.0.0/8"))


class Site:
    """A small HTTP server that can be slow, broken or somewhere else."""

    def __init__(self) -> None:
        self.delay_s, self.status = 0.0, 200
        self.headers: dict[str, str] = {}
        self.connections: set[object] = set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        await asyncio.sleep(self.delay_s)
        headers = {"Location": "http://127.0.0.1:1/"} if self.status == 302 else self.headers
        return web.Response(status=self.status, headers=headers, body=b"not packed" if self.headers else b"")


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_get("/", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.2", 0).start()
    site.url = f"http://127.0.0.2:{runner.addresses[0][1]}/"
    try:
        yield site
    finally:
        await runner.cleanup()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", 0))
        return int(listener.getsockname()[1])


async def test_a_round_trip_takes_as_long_as_the_answer() -> None:
    async with serving() as site, Probes(HERE) as probes:
        site.delay_s = 0.05
        assert 50 <= await probes.round_trip_ms(Probe(url=site.url)) < 1000


async def test_the_next_probe_uses_the_same_connection() -> None:
    async with serving() as site, Probes(HERE) as probes:
        for _ in range(3):
            await probes.round_trip_ms(Probe(url=site.url))
        assert len(site.connections) == 1


@pytest.mark.parametrize("status", [204, 302, 404])
async def test_any_answer_below_500_counts_and_redirects_are_not_followed(status: int) -> None:
    async with serving() as site, Probes(HERE) as probes:
        site.status = status
        await probes.round_trip_ms(Probe(url=site.url))


async def test_what_stands_in_an_answer_is_not_looked_at() -> None:
    async with serving() as site, Probes(HERE) as probes:
        site.headers = {"Content-Encoding": "gzip"}  # which it is not: whoever unpacked it would fail
        await probes.round_trip_ms(Probe(url=site.url))


async def test_a_server_that_is_not_well_does_not_count() -> None:
    async with serving() as site, Probes(HERE) as probes:
        site.status = 503
        with pytest.raises(Unavailable, match="server error"):
            await probes.round_trip_ms(Probe(url=site.url))


async def test_nobody_is_waited_for_longer_than_the_deadline() -> None:
    async with serving() as site, Probes(HERE) as probes:
        site.delay_s = 60.0
        with pytest.raises(Unavailable, match="no answer in time"):
            await probes.round_trip_ms(Probe(url=site.url, timeout_seconds=1))


async def test_a_handshake_is_a_round_trip_too_and_a_closed_port_is_none() -> None:
    async with serving() as site, Probes(HERE) as probes:
        port = int(site.url.rstrip("/").rpartition(":")[2])
        assert 0 < await probes.round_trip_ms(Probe(host="127.0.0.2", port=port)) < 1000
        for probe in (Probe(host="127.0.0.2", port=free_port()), Probe(url=f"http://127.0.0.2:{free_port()}")):
            with pytest.raises(Unavailable):
                await probes.round_trip_ms(probe)
