import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tiphys_models.base.errors import Unavailable
from tiphys_testbed.bench.closed_loop import ClosedLoop


@contextmanager
def server(*answers: bytes) -> Iterator[int]:
    """Gives these raw answers in turn; hangs up after one that says so."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(5)

    def serve() -> None:
        pending = list(answers)
        while pending:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(5)
                while pending:
                    request = b""
                    while not request.endswith(b"body"):
                        if not (part := connection.recv(65536)):
                            return
                        request += part
                    answer = pending.pop(0)
                    for start in range(0, len(answer), 7):  # in pieces: an answer rarely comes at once
                        connection.sendall(answer[start : start + 7])
                    if b"close" in answer.lower() or not answer:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        thread.join(5)
        listening.close()


def ok(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), *headers, b"", body])


def test_calls_share_one_connection_and_return_whole_bodies() -> None:
    with server(ok(b"[1]"), ok(b"x" * 500), ok(b"")) as port, ClosedLoop(port) as loop:
        answers = [loop.call("/prioritize", b"body") for _ in range(3)]
        assert [body for _, body in answers] == [b"[1]", b"x" * 500, b""]
        assert all(took_ms > 0 for took_ms, _ in answers)
        assert loop.dialed == 1


def test_a_server_that_closes_is_dialed_again() -> None:
    with server(ok(b"[]", b"Connection: close"), ok(b"[]")) as port, ClosedLoop(port) as loop:
        loop.call("/prioritize", b"body")
        loop.call("/prioritize", b"body")
        assert loop.dialed == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\noops", "answered 500"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "without Content-Length"),
        (b"", "did not answer"),
    ],
)
def test_anything_else_is_an_error_that_says_what(answer: bytes, why: str) -> None:
    with server(answer) as port, ClosedLoop(port) as loop, pytest.raises(Unavailable, match=why):
        loop.call("/prioritize", b"body")


def test_nobody_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with ClosedLoop(port) as loop, pytest.raises(Unavailable, match="no extender"):
        loop.call("/prioritize", b"body")
