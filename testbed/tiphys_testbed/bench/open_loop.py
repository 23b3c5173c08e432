"""Requests sent when their time has come, whether earlier ones were answered or not. Latency counts from that time, so that a server
that stalls is charged for everybody who would have asked meanwhile."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from tiphys_models.base.errors import TiphysError, Unavailable

_HEADER_END = b"\r\n\r\n"
_DRAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer and its latency."""

    status: int
    body: bytes
    took_ms: float
    """Milliseconds from when the request was due to the last byte of its answer."""


Follow = Callable[[Answered], None]


@dataclass(order=True, slots=True)
class _Due:
    at_s: float
    number: int
    method: str = field(compare=False)
    path: str = field(compare=False)
    body: bytes = field(compare=False)
    follow: Follow = field(compare=False)


class _Connection(asyncio.Protocol):
    def __init__(self, loop: OpenLoop) -> None:
        self._loop = loop
        self._received = b""
        self._due: _Due | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, due: _Due, head: bytes) -> None:
        self._due = due
        line = f"{due.method} {due.path} HTTP/1.1\r\n".encode()
        self.transport.write(line + head + b"content-length: %d\r\n\r\n" % len(due.body) + due.body)

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_HEADER_END)
        if end < 0:
            return
        length = int(self._received[:end].lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        body = self._received[end + 4 :]
        if len(body) < length or self._due is None:
            return
        due, status = self._due, int(self._received[9:12])
        self._received, self._due = b"", None
        self._loop.answered(self, due, Answered(status, body, (time.perf_counter() - due.at_s) * 1e3))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due is not None:
            self._loop.failed = Unavailable(f"the connection was closed before {self._due.method} {self._due.path} was answered")


class OpenLoop:
    """A schedule of requests to one server, over as many connections as are unanswered at once."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self._port = port
        self._head = "".join(f"{name}: {value}\r\n" for name, value in {"host": "127.0.0.1", **headers}.items()).encode()
        self._due: list[_Due] = []
        self._number = 0
        self._idle: list[_Connection] = []
        self._unanswered = 0
        self._connections: list[_Connection] = []
        self.failed: TiphysError | None = None

    def at(self, at_s: float, method: str, path: str, body: bytes, follow: Follow) -> None:
        """Send this then, by `time.perf_counter`."""
        self._number += 1
        heapq.heappush(self._due, _Due(at_s, self._number, method, path, body, follow))

    async def run(self) -> None:
        """The requests are sent, and all answers awaited; Unavailable if they do not come in time."""
        try:
            await self._play()
        finally:
            for connection in self._connections:
                connection.transport.abort()
            await asyncio.sleep(0)  # sockets close in the next round of the loop

    @property
    def connections(self) -> int:
        """How many there were at most."""
        return len(self._connections)

    async def _play(self) -> None:
        loop = asyncio.get_running_loop()
        while self._due:
            wait_s = self._due[0].at_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
                continue
            due = heapq.heappop(self._due)
            connection = self._idle.pop() if self._idle else await self._dial(loop)
            self._unanswered += 1
            connection.send(due, self._head)
            await asyncio.sleep(0)
            if not self._due:
                await self._drained()
            if self.failed is not None:
                raise self.failed

    def answered(self, connection: _Connection, due: _Due, answer: Answered) -> None:
        """The connection is free again; what follows from the answer may be sent."""
        self._unanswered -= 1
        self._idle.append(connection)
        try:
            due.follow(answer)
        except TiphysError as error:
            self.failed = error

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> _Connection:
        _, made = await loop.create_connection(lambda: _Connection(self), "127.0.0.1", self._port)
        self._connections.append(made)
        return made

    async def _drained(self) -> None:
        end_s = time.perf_counter() + _DRAIN_S
        while self._unanswered and not self._due and self.failed is None:
            if time.perf_counter() > end_s:
                raise Unavailable(f"{self._unanswered} requests were not answered within {_DRAIN_S:.0f} s")
            await asyncio.sleep(0.001)
