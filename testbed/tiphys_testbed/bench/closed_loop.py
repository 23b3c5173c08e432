"""One keep-alive connection, one call in flight: how kube-scheduler calls an extender, with nothing of ours in the timing."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from typing import Self

from tiphys_models.base.errors import Unavailable

_HEADER_END = b"\r\n\r\n"
_CHUNK = 256 * 1024


class ClosedLoop:
    """A connection to the extender's hot path; `calls_dialed` grows when the server closed it between calls."""

    def __init__(self, port: int, timeout_s: float = 10.0) -> None:
        self._port, self._timeout_s = port, timeout_s
        self._socket: socket.socket | None = None
        self.dialed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """The connection is closed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, path: str, body: bytes) -> tuple[float, bytes]:
        """POST a body; (milliseconds from first byte out to last byte in, the answer's body)."""
        request = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        ).encode() + body
        connection = self._connected()
        started = time.perf_counter_ns()
        try:
            connection.sendall(request)
            status, answer, closing = self._answer(connection)
        except OSError as error:
            self.close()
            raise Unavailable(f"the extender did not answer POST {path}: {error}") from error
        took_ms = (time.perf_counter_ns() - started) / 1e6
        if closing:
            self.close()
        if status != 200:
            raise Unavailable(f"POST {path} was answered {status}: {answer[:200]!r}")
        return took_ms, answer

    def _connected(self) -> socket.socket:
        if self._socket is None:
            try:
                self._socket = socket.create_connection(("127.0.0.1", self._port), self._timeout_s)
            except OSError as error:
                raise Unavailable(f"no extender on 127.0.0.1:{self._port}: {error}") from error
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.dialed += 1
        return self._socket

    def _answer(self, connection: socket.socket) -> tuple[int, bytes, bool]:
        received = b""
        while (end := received.find(_HEADER_END)) < 0:
            received += _some(connection)
        head = received[:end].lower()
        body = received[end + len(_HEADER_END) :]
        length = _content_length(head)
        while len(body) < length:
            body += _some(connection)
        return int(received.split(b" ", 2)[1]), body, b"\r\nconnection: close" in head


def _some(connection: socket.socket) -> bytes:
    chunk = connection.recv(_CHUNK)
    if not chunk:
        raise ConnectionResetError("the connection was closed in the middle of an answer")
    return chunk


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise Unavailable("the extender answered without Content-Length: kube-scheduler would open a connection for every pod")
