"""What strangers may cost a listener: the same bounds whichever of our two protocols speaks on it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import tracemalloc
from collections import Counter
from collections.abc import AsyncGenerator, Callable

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.extender.harness import Extender, connected, listening, serving
from tiphys_models.serving.bounds import HEAD_BYTES, HEADERS, URL_BYTES, ListenerBounds, Peers

MIB = 2**20
Refusals = Counter[int]
Listener = Callable[..., contextlib.AbstractAsyncContextManager[tuple[int, Callable[[int], float]]]]


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that answers without reading a body."""
    await PlainTextResponse("hello")(scope, receive, send)


@contextlib.asynccontextmanager
async def status_like(bounds: ListenerBounds = ListenerBounds()) -> AsyncGenerator[tuple[int, Callable[[int], float]]]:  # noqa: B008 - it is frozen
    refusals: Refusals = Counter()
    async with listening(hello, lambda status: refusals.update([status]), bounds=bounds) as port:
        yield port, lambda status: refusals[status]


@contextlib.asynccontextmanager
async def hot(bounds: ListenerBounds = ListenerBounds()) -> AsyncGenerator[tuple[int, Callable[[int], float]]]:  # noqa: B008 - it is frozen
    extender = Extender(nodes=3)
    async with serving(extender, bounds=bounds) as port:
        yield port, lambda status: extender.counted("requests_total", code=str(status))


LISTENERS = pytest.mark.parametrize("listener", [status_like, hot], ids=["uvicorn's protocol", "the scheduler's listener"])
HEAD = b"POST /prioritize HTTP/1.1\r\nHost: x\r\n"
TOO_MUCH = {
    "many small headers": (HEAD, b"a:b\r\n", 431),
    "one header without end": (HEAD + b"a:", b"x" * 4096, 431),
    "one name without end": (HEAD, b"x" * 4096, 431),
    "a request line without end": (b"POST /", b"x" * 4096, 414),
    "a long query": (b"POST /?", b"x=1&" * 1024, 414),
    "trailers without end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na:", b"x" * 4096, 431),
    "many trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"a:b\r\n", 431),
}


async def flood(port: int, start: bytes, more: bytes, total: int) -> bytes:
    """Send until so many bytes are gone or the peer hangs up; what it said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    chunk = more * (65_536 // len(more) + 1)
    with contextlib.suppress(OSError):
        writer.write(start)
        sent = 0
        while sent < total and not reader.at_eof():
            writer.write(chunk)
            sent += len(chunk)
            await writer.drain()
    answer = b""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(3):
            answer = await reader.read()
    writer.close()
    return answer


@LISTENERS
@pytest.mark.parametrize("kind", TOO_MUCH)
async def test_37_megabytes_of_head_from_one_connection_cost_less_than_five(listener: Listener, kind: str) -> None:
    start, more, status = TOO_MUCH[kind]
    async with listener() as (port, refused):
        tracemalloc.start()
        try:
            await flood(port, start, more, 37 * MIB)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 5 * MIB
        assert refused(status) == 1
        async with connected(port) as other:  # and nobody else is harmed
            assert (await other.post(b"{}"))[0] in (200, 400)


@LISTENERS
async def test_what_an_honest_client_sends_at_most_is_read(listener: Listener) -> None:
    async with listener() as (port, _), connected(port) as connection:
        status, _, _ = await connection.post(b"{}", "/?" + "q" * (URL_BYTES - 100), **{f"h{i}": "v" * 200 for i in range(HEADERS - 10)})
        assert status in (200, 404)
        status, _, _ = await connection.post(b"{}", big="v" * (HEAD_BYTES - 1_000))
        assert status in (200, 400)


@LISTENERS
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /" + b"x" * 9_000 + b" HTTP/1.1\r\n\r\n", 414),
        (HEAD + b"a: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (HEAD + b"a: b\r\n" * 200 + b"\r\n", 431),
        (HEAD + b"Content-Length: 99999999\r\n\r\n", 413),
        (HEAD + b"Content-Length: " + b"0" * 5_000 + b"\r\n\r\n", 413),
        (b"\x16\x03\x01 this is not HTTP\r\n\r\n", 400),
    ],
    ids=["url", "header", "headers", "body", "a length of five thousand zeros", "no HTTP"],
)
async def test_too_much_gets_its_status_a_short_reason_and_the_end(listener: Listener, sent: bytes, status: int) -> None:
    async with listener() as (port, refused), connected(port) as connection:
        connection.writer.write(sent)
        answer = await connection.closed(within_s=2)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in head.lower()
        assert body.startswith(b'{"error":"')
        assert refused(status) == 1


async def test_an_empty_line_and_silence_is_cut_like_any_request_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_models.serving.bounds.RECEIPT_LIMIT_S", 0.1)
    async with status_like() as (port, _), connected(port) as connection:
        connection.writer.write(b"\r\n")
        await connection.closed(within_s=2)


async def test_the_second_of_two_requests_sent_together_has_its_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_models.serving.bounds.RECEIPT_LIMIT_S", 0.1)
    async with status_like() as (port, refused), connected(port) as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\n\r\nGET / HT")
        assert b"hello" in await connection.closed(within_s=2)
        assert refused(408) == 1


async def send_and_never_read(port: int, request: bytes) -> None:
    """Until the connection is cut: ConnectionError."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_024)
    deaf.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(deaf, ("127.0.0.1", port))
        async with asyncio.timeout(8):
            while True:
                await loop.sock_sendall(deaf, request)
                await asyncio.sleep(0.01)
    finally:
        deaf.close()


async def test_a_peer_that_never_takes_its_answers_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiphys_extender.placement.hot_listener.ANSWER_LIMIT_S", 0.1)
    async with hot() as (port, _):
        with pytest.raises(ConnectionError):
            await send_and_never_read(port, b"POST /floor HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" * 1_000)


async def test_a_peer_that_never_takes_a_long_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(b"x" * 20 * MIB)(scope, receive, send)

    monkeypatch.setattr("tiphys_models.serving.bounds.ANSWER_LIMIT_S", 0.1)
    async with listening(long) as port:
        with pytest.raises(ConnectionError):
            await send_and_never_read(port, b"GET / HTTP/1.1\r\n\r\n")


async def test_requests_sent_far_ahead_of_their_answers_end_the_connection() -> None:
    async with status_like() as (port, refused), connected(port) as connection:
        connection.writer.write(b"GET / HTTP/1.1\r\n\r\n" * 5_000)
        with contextlib.suppress(ConnectionError):  # what it had sent unread makes the end abrupt
            await connection.closed(within_s=2)
        assert refused(429) == 1


@LISTENERS
async def test_one_address_has_so_many_connections_and_no_more(listener: Listener) -> None:
    async with listener(ListenerBounds(connections_a_peer=3)) as (port, refused), contextlib.AsyncExitStack() as stack:
        first = [await stack.enter_async_context(connected(port)) for _ in range(3)]
        for connection in first:
            assert (await connection.post(b"{}"))[0] in (200, 400)
        async with connected(port) as fourth:
            assert (await fourth.closed(within_s=2)).startswith(b"HTTP/1.1 503 ")
        assert refused(503) == 1
        assert (await first[0].post(b"{}"))[0] in (200, 400)
        first[1].writer.close()
        async with asyncio.timeout(2):
            while True:
                async with connected(port) as again:
                    with contextlib.suppress(OSError, EOFError):
                        if (await again.post(b"{}"))[0] in (200, 400):
                            break


async def test_a_scheduler_on_loopback_keeps_as_many_connections_as_it_likes() -> None:
    bounds = ListenerBounds(connections_a_peer=3, loopback_is_free=True)
    async with hot(bounds) as (port, refused), contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            connection = await stack.enter_async_context(connected(port))
            assert (await connection.post(b"{}"))[0] == 400
        assert refused(503) == 0


async def test_an_address_that_asks_too_fast_is_told_so_and_others_are_not() -> None:
    async with status_like(ListenerBounds(per_second=1, burst=10)) as (port, refused):
        async with connected(port) as connection:
            answers = []
            with contextlib.suppress(OSError, EOFError):
                for _ in range(50):
                    status, _, _ = await connection.get("/")
                    answers.append(status)
        assert answers[:5] == [200] * 5
        assert answers[-1] == 429
        assert len(answers) < 15
        assert refused(429) == 1
        async with connected(port) as turned_away:
            assert (await turned_away.closed(within_s=2)).startswith(b"HTTP/1.1 503 ")
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=other)
        writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(2):
            assert (await reader.read()).endswith(b"hello")
        writer.close()


def test_when_all_places_are_taken_the_greediest_peer_makes_room() -> None:
    peers, cut = Peers(ListenerBounds(connections=4, connections_a_peer=64)), []
    for index in range(4):
        slot = peers.admit("10.0.0.1")
        assert slot is not None
        slot.cut_by(lambda index=index: cut.append(index))  # type: ignore[misc]
    assert peers.admit("10.0.0.1") is None
    assert peers.admit("10.0.0.2") is not None
    assert cut == [0]
    assert peers.open == 4


def test_rates_of_any_number_of_addresses_are_kept_in_bounded_memory() -> None:
    now_s = 0.0
    peers = Peers(ListenerBounds(per_second=1, burst=1), lambda: now_s)
    for index in range(50_000):
        peers.spend(f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}")
    assert len(peers._spent_until_s) <= 4_096


def test_a_place_that_is_left_twice_is_counted_once() -> None:
    peers = Peers(ListenerBounds())
    slot, other = peers.admit("a"), peers.admit("a")
    assert slot is not None
    assert other is not None
    slot.leave()
    slot.leave()
    assert peers.open == 1


async def test_an_honest_peer_that_queues_behind_a_flood_is_served_within_a_second() -> None:
    async with status_like(ListenerBounds(per_second=1, burst=1)) as (port, refused):
        flood = [socket.socket() for _ in range(300)]
        for connection in flood:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.connect(("127.0.0.1", port))
        honest = socket.socket()
        honest.bind(("127.0.0.3", 0))
        honest.setblocking(False)
        async with asyncio.timeout(1):
            await asyncio.get_running_loop().sock_connect(honest, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=honest)
            writer.write(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"hello")
        writer.close()
        for connection in flood:
            connection.close()
        assert refused(503) > 250


async def test_listeners_share_nothing_when_one_is_flooded() -> None:
    async with status_like(ListenerBounds(per_second=1, burst=1)) as (port, _), hot() as (scheduler, _):
        for _ in range(20):
            async with connected(port):
                pass
        async with connected(scheduler) as connection:
            assert (await connection.post(b"{}"))[0] == 400


async def test_an_application_that_fails_is_named_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("hunter2-in-env")

    async with listening(failing) as port, connected(port) as connection:
        assert (await connection.get("/"))[0] == 500
    (record,) = [record for record in caplog.records if record.message == "request failed"]
    assert record.fields["error"] == "ValueError"  # type: ignore[attr-defined]
    assert "hunter2" not in caplog.text


@LISTENERS
@pytest.mark.parametrize("said", [b"", HEAD + b"a:b\r\n" * 50, HEAD + b"Content-Length: 2\r\n\r\n{}", b"\x00\r\n\r\n"])
async def test_of_a_lost_connection_nothing_waits_for_the_collector(listener: Listener, said: bytes) -> None:
    def connect_and_hang_up() -> None:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
                peer.sendall(said)

    def kept() -> int:
        return sum(type(thing).__name__ in ("_SelectorSocketTransport", "CountingProtocol", "HotConnection") for thing in gc.get_objects())

    async with listener() as (port, _):
        gc.collect()
        gc.disable()
        before = kept()  # other tests may have left some
        try:
            await asyncio.to_thread(connect_and_hang_up)
            async with asyncio.timeout(3):
                while kept() > before + 2:  # noqa: ASYNC110 - how much a process keeps is no event
                    await asyncio.sleep(0.05)
        finally:
            gc.enable()
