"""The benchmark of the binder: its open loop against a server of the test's own, and the objects it gives the binder."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from tiphys_models.api.catalogue import compile_catalogue, site_seen, variant_seen
from tiphys_models.api.stream_policy import parse_stream_policy
from tiphys_models.base.errors import Unavailable
from tiphys_testbed.bench.binder import ACCESS_SITE, stream_objects
from tiphys_testbed.bench.open_loop import Answered, OpenLoop

STALL_S = 0.3


class Server:
    """Answers 200 with the number of the request; some are slow, some are never answered."""

    def __init__(self) -> None:
        self.asked = 0
        self.tasks: list[asyncio.Task[None] | None] = []
        self.free = asyncio.Event()
        self.free.set()

    async def stall(self, asked: int) -> None:
        """Until so many have asked, and a while longer."""
        while self.asked < asked:  # noqa: ASYNC110 - counted by another task
            await asyncio.sleep(0.005)
        await asyncio.sleep(STALL_S)
        self.free.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tasks.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))
                self.asked += 1
                if head.startswith(b"PUT"):
                    break
                await self.free.wait()
                body = head.split(b" ", 2)[1]
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[tuple[Server, OpenLoop]]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield server, OpenLoop(listener.sockets[0].getsockname()[1], {"authorization": "Bearer t"})
    finally:
        listener.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*(task for task in server.tasks if task is not None))


async def test_requests_are_sent_when_due_and_what_follows_from_an_answer_is_sent_too() -> None:
    answers: list[Answered] = []
    async with serving() as (server, loop):
        start_s = time.perf_counter()
        loop.at(start_s + 0.05, "POST", "/second", b"x", answers.append)

        def follow(answered: Answered) -> None:
            answers.append(answered)
            loop.at(start_s + 0.1, "DELETE", "/third", b"", answers.append)

        loop.at(start_s, "POST", "/first", b"", follow)
        async with asyncio.timeout(10):
            await loop.run()
    assert [(a.status, a.body) for a in answers] == [(200, b"/first"), (200, b"/second"), (200, b"/third")]
    assert time.perf_counter() - start_s >= 0.1
    assert server.asked == 3


async def test_a_server_that_stalls_is_charged_for_everybody_who_was_due_meanwhile() -> None:
    answers: list[Answered] = []
    async with serving() as (server, loop):
        server.free.clear()
        start_s = time.perf_counter()
        for number in range(10):
            loop.at(start_s + number * 0.01, "POST", "/", b"", answers.append)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(server.stall(10))
            await loop.run()
    assert loop.connections == 10, "nobody waits for another one's answer"
    assert min(a.took_ms for a in answers) >= STALL_S * 1000 * 0.99


async def test_a_connection_that_ends_without_an_answer_ends_the_run() -> None:
    async with serving() as (_, loop):
        loop.at(time.perf_counter(), "PUT", "/", b"", lambda a: None)
        with pytest.raises(Unavailable, match="before PUT / was answered"):
            async with asyncio.timeout(10):
                await loop.run()


async def test_a_follower_that_refuses_an_answer_ends_the_run() -> None:
    def refuse(answered: Answered) -> None:
        raise Unavailable("not what was asked for")

    async with serving() as (_, loop):
        loop.at(time.perf_counter(), "POST", "/", b"", refuse)
        with pytest.raises(Unavailable, match="not what was asked for"):
            async with asyncio.timeout(10):
                await loop.run()


def test_its_objects_are_500_offers_that_can_be_bound_to() -> None:
    items = stream_objects(50, 10, "aset", np.random.default_rng(0))["items"]
    named = [item | {"metadata": item["metadata"] | {"namespace": "n"}} for item in items]
    sites = [site_seen(item) for item in named if item["kind"] == "InferenceSite"]
    variants = [variant_seen(item) for item in named if item["kind"] == "ModelVariant"]
    catalogue = compile_catalogue(ACCESS_SITE, sites, variants, 0.0)
    assert len(catalogue.offers) == 500
    assert catalogue.up.all()
    assert np.isfinite(catalogue.network_ms).all()
    assert {site.spec.layer for site in sites} == {"antenna", "co", "dc", "cloud"}
    assert [parse_stream_policy(item).policy for item in named if item["kind"] == "StreamPolicy"] == ["aset"]
