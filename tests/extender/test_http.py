"""The scheduler's listener on a real socket: what connections and bodies may do to it."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.extender.harness import Connection, Extender, arguments, check_contract, connected, serving

NAMES = ["n0", "n1", "n2"]
CALL = json.dumps(arguments(NAMES)).encode()


async def test_fifty_calls_share_one_connection_and_say_their_length() -> None:
    extender = Extender(nodes=3)
    async with serving(extender) as port, connected(port) as connection:
        for index in range(50):
            status, headers, answer = await connection.post(json.dumps(arguments(NAMES, uid=f"u{index}")).encode())
            assert status == 200
            assert headers["content-type"] == "application/json"
            assert "server" not in headers
            assert "transfer-encoding" not in headers
            check_contract(answer, NAMES)
    assert extender.decisions.last == 50
    assert extender.counted("requests_total", code="200") == 50
    assert extender.counted("request_duration_seconds_count") == 50


async def test_the_floor_reads_the_same_body_and_answers_neutral() -> None:
    extender = Extender(nodes=3)
    async with serving(extender, floor=True) as port, connected(port) as connection:
        status, _, answer = await connection.post(CALL, "/floor")
        assert status == 200
        assert json.loads(answer) == [{"Host": name, "Score": 5} for name in NAMES]
        assert (await connection.post(b"{", "/floor"))[0] == 400
    assert extender.decisions.last == 0


async def test_the_floor_is_not_there_unless_asked_for() -> None:
    async with serving(Extender(nodes=3)) as port, connected(port) as connection:
        assert (await connection.post(CALL, "/floor"))[0] == 404
        assert (await connection.get("/docs"))[0] == 404
        assert (await connection.get("/openapi.json"))[0] == 404


async def test_bad_requests_get_a_reason_and_leave_the_connection_usable() -> None:
    extender = Extender(nodes=3)
    async with serving(extender) as port, connected(port) as connection:
        for body, reason in ((b"{", "not-json"), (b"[]", "not-an-object"), (b"{}", "no-names"), (b'{"NodeNames":[1]}', "bad-names")):
            status, _, answer = await connection.post(body)
            assert (status, json.loads(answer)) == (400, {"error": reason})
            assert extender.counted("bad_requests_total", reason=reason) == 1
        assert (await connection.post(CALL))[0] == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_only_post_is_answered(method: str) -> None:
    extender = Extender(nodes=3)
    async with serving(extender) as port, connected(port) as connection:
        status, headers, answer = await connection.send(method, "/prioritize", CALL)
        assert (status, headers["allow"], json.loads(answer)) == (405, "POST", {"error": "method"})
        assert extender.counted("bad_requests_total", reason="method") == 1


async def test_a_body_that_announces_too_much_is_refused_unread() -> None:
    extender = Extender(nodes=3)
    async with serving(extender, max_body_bytes=10_000) as port, connected(port) as connection:
        connection.writer.write(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 10001\r\n\r\n{")
        async with asyncio.timeout(0.9):
            status, headers, answer = await connection.answer()
        assert (status, headers["connection"], json.loads(answer)) == (413, "close", {"error": "body-too-large"})
    assert extender.counted("bad_requests_total", reason="body-too-large") == 1


async def test_a_chunked_body_is_counted_while_it_comes() -> None:
    async with serving(Extender(nodes=3), max_body_bytes=10_000) as port, connected(port) as connection:
        connection.writer.write(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.writer.write((b"800\r\n" + b" " * 0x800 + b"\r\n") * 6)
        async with asyncio.timeout(0.9):
            assert (await connection.answer())[0] == 413


async def test_a_chunked_body_within_the_limit_is_answered() -> None:
    async with serving(Extender(nodes=3)) as port, connected(port) as connection:
        connection.writer.write(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(CALL), 100):
            part = CALL[start : start + 100]
            connection.writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.writer.write(b"0\r\n\r\n")
        async with asyncio.timeout(2):
            status, _, answer = await connection.answer()
        assert status == 200
        check_contract(answer, NAMES)


async def test_compressed_bodies_are_refused_so_that_no_bomb_is_unpacked() -> None:
    async with serving(Extender(nodes=3)) as port, connected(port) as connection:
        status, _, answer = await connection.post(b"\x1f\x8b" + b"\0" * 50, Content_Encoding="gzip")
        assert (status, json.loads(answer)) == (400, {"error": "content-encoding"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [b"POST /prio", b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"POST /prioritize HTTP/1.1\r\nHos"]
)
async def test_a_request_not_received_within_a_second_is_cut(start: bytes) -> None:
    extender = Extender(nodes=3)
    async with serving(extender) as port, connected(port) as slow, connected(port) as other:
        began_s = time.monotonic()
        slow.writer.write(start)
        while time.monotonic() - began_s < 0.7:  # a byte now and then does not help
            await asyncio.sleep(0.1)
            slow.writer.write(b"X")
            assert (await other.post(CALL))[0] == 200
        rest = await slow.closed(within_s=2)
        assert rest.startswith(b"HTTP/1.1 408")
        assert 0.9 <= time.monotonic() - began_s < 2.6
    assert extender.counted("bad_requests_total", reason="too-slow") == 1


async def test_garbage_on_the_socket_is_a_400_and_nothing_worse() -> None:
    async with serving(Extender(nodes=3)) as port:
        async with connected(port) as connection:
            connection.writer.write(b"\x16\x03\x01\x02\x00 this is not HTTP\r\n\r\n")
            assert (await connection.closed(within_s=2)).startswith(b"HTTP/1.1 400")
        async with connected(port) as connection:
            assert (await connection.post(CALL))[0] == 200


async def test_a_peer_that_hangs_up_in_the_middle_harms_nobody() -> None:
    extender = Extender(nodes=3)
    async with serving(extender) as port, connected(port) as other:
        for _ in range(20):
            async with connected(port) as gone:
                gone.writer.write(b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n{")
                await gone.writer.drain()
        assert (await other.post(CALL))[0] == 200


@pytest.mark.slow
async def test_a_thousand_idle_connections_do_not_slow_the_scheduler() -> None:
    async with serving(Extender(nodes=3)) as port, connected(port) as connection:
        alone_s = await typical_call_s(connection)
        idle = []
        try:
            for _ in range(20):
                idle += await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(50)))
            assert await typical_call_s(connection) < 3 * alone_s + 0.002
        finally:
            for _, writer in idle:
                writer.close()


async def typical_call_s(connection: Connection) -> float:
    """Median of a hundred calls."""
    took_s = []
    for _ in range(100):
        began_s = time.monotonic()
        assert (await connection.post(CALL))[0] == 200
        took_s.append(time.monotonic() - began_s)
    return sorted(took_s)[50]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(Extender(nodes=3)) as port, connected(port) as connection:
        head = b"POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: "
        bodies = [json.dumps(arguments([f"only-{i}", "n0"])).encode() for i in range(5)]
        connection.writer.write(b"".join(head + str(len(b)).encode() + b"\r\n\r\n" + b for b in bodies))
        for index in range(5):
            async with asyncio.timeout(2):
                _, _, answer = await connection.answer()
            check_contract(answer, [f"only-{index}", "n0"])
