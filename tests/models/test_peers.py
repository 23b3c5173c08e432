"""Asking another process of ours over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.names import Names
from tiphys_models.kube.peers import Address, Peers, Service, addresses_of


class Process:
    """One that answers as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = web.Response(body=b'{"last": 1}')
        self.asked: list[web.Request] = []
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        return self.answer

    @property
    def address(self) -> Address:
        return Address(Service("http", "binder.example", self.port), "127.0.0.1")


@pytest.fixture
async def process() -> AsyncIterator[Process]:
    found = Process()
    app = web.Application()
    app.router.add_get("/{any:.*}", found.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
        yield Peers(session, lambda: "secret", body_max_bytes=1_000)


async def test_one_address_is_asked_by_the_name_of_its_service_with_the_token(process: Process, peers: Peers) -> None:
    assert await peers.get_object(process.address, "/v1/decisions", {"after": "3"}) == {"last": 1}
    (asked,) = process.asked
    assert (asked.path_qs, asked.headers["Host"]) == ("/v1/decisions?after=3", f"binder.example:{process.port}")
    assert asked.headers["Authorization"] == "Bearer secret"


async def test_the_token_follows_no_redirect(process: Process, peers: Peers) -> None:
    process.answer = web.Response(status=302, headers={"Location": f"http://127.0.0.1:{process.port}/elsewhere"})
    with pytest.raises(Unavailable, match="answered 302"):
        await peers.get(process.address, "/v1/decisions")
    assert len(process.asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web.Response(status=500, text="x" * 500), "answered 500: x{200}$"),
        (web.Response(body=b"x" * 1_001), "sent more than 1000 bytes"),
        (web.Response(body=b"[1]"), "something that is no object"),
        (web.Response(body=b"{"), "/v1/decisions"),
    ],
)
async def test_an_answer_that_is_of_no_use_says_why(process: Process, peers: Peers, answer: web.Response, words: str) -> None:
    process.answer = answer
    with pytest.raises(Unavailable, match=words):
        await peers.get_object(process.address, "/v1/decisions")


async def test_nobody_there_is_unavailable_and_not_an_error_of_the_transport(peers: Peers) -> None:
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1/x"):
        await peers.get("http://127.0.0.1:1", "/x")


async def test_a_name_stands_for_its_addresses_in_a_fixed_order() -> None:
    service = Service.of("https://127.0.0.1:8443/ignored")
    assert service == Service("https", "127.0.0.1", 8443)
    assert await addresses_of(Names(), service, 5.0) == [Address(service, "127.0.0.1")]
    assert str(Address(Service("http", "h", 80), "::1")) == "[::1]:80"
    with pytest.raises(Unavailable, match=r"cannot resolve nobody\.invalid"):
        await addresses_of(Names(), Service.of("http://nobody.invalid"), 5.0)
