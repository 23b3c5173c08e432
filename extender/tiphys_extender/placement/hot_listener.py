"""The scheduler's listener: POST in, one write out, answered inline on the event loop.

kube-scheduler makes one call a pod on one connection and waits for it, so what stands between socket and decision is paid by every
pod. An ASGI server with its task, queue and messages a request costs more than a decision among 100 nodes does, and writes
head and body one after the other, which wakes the scheduler twice. No executor either: it adds 0.2 ms a call and doubles p99.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import cast

import httptools

from tiphys_extender.placement.answer import Answerer
from tiphys_extender.serve.metrics import Metrics
from tiphys_extender.serve.tls import handshake_failures
from tiphys_extender.serve.wire import BadRequest, encode_error
from tiphys_models.serving.acceptor import Acceptor, let_go
from tiphys_models.serving.bounds import (
    ANSWER_LIMIT_S,
    HEAD_BYTES,
    HEADERS,
    IDLE_LIMIT_S,
    LENGTH_DIGITS,
    RECEIPT_LIMIT_S,
    URL_BYTES,
    ListenerBounds,
    Peers,
    Slot,
)

_log = logging.getLogger(__name__)

_LINES = {
    200: b"200 OK",
    400: b"400 Bad Request",
    404: b"404 Not Found",
    405: b"405 Method Not Allowed\r\nallow: POST",
    408: b"408 Request Timeout",
    413: b"413 Content Too Large",
    414: b"414 URI Too Long",
    431: b"431 Request Header Fields Too Large",
    500: b"500 Internal Server Error",
}
_CLOSING = frozenset({"body-too-large", "content-encoding", "not-http", "url-too-long", "head-too-large"})
"""After these the rest of the connection is not read."""


class HotRoutes:
    """What a body is answered with, by path."""

    def __init__(self, answerer: Answerer, metrics: Metrics, *, max_body_bytes: int, expose_floor: bool) -> None:
        self.metrics = metrics
        self.max_body_bytes = max_body_bytes
        self.settle = answerer.settle
        self._answers: Mapping[bytes, Callable[[bytes], bytes]] = {b"/prioritize": answerer.prioritize}
        if expose_floor:
            self._answers = {**self._answers, b"/floor": answerer.floor}

    def knows(self, path: bytes) -> bool:
        """Whether anything is served there."""
        return path in self._answers

    def answer(self, path: bytes, body: bytes) -> bytes:
        """BadRequest for a body that cannot be read."""
        return self._answers[path](body)


class HotListener:
    """All connections to one socket."""

    def __init__(self, routes: HotRoutes) -> None:
        self.routes = routes
        self.connections: set[HotConnection] = set()
        self.stopping = False
        self._acceptor: Acceptor | None = None
        self._settling: asyncio.Handle | None = None

    def start(self, listener: socket.socket, bounds: ListenerBounds, tls: Callable[[], ssl.SSLContext | None]) -> None:
        """Accept connections from now on, each with the TLS context of its moment."""
        self._acceptor = Acceptor(
            listener,
            lambda: HotConnection(self),
            Peers(bounds),
            tls=tls,
            on_refused=self._count_refused,
            on_handshake_failed=handshake_failures(self.routes.metrics).tell,
        )
        self._acceptor.start()

    async def stop(self, within_s: float) -> None:
        """Accept no more; requests that are being received may still be answered."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        if self._acceptor is not None:
            self._acceptor.close()
        end_s = loop.time() + within_s
        while self.connections and loop.time() < end_s:
            for connection in [c for c in self.connections if not c.receiving]:
                connection.close()
            await asyncio.sleep(0.01)
        if self._acceptor is not None:
            await self._acceptor.wait_closed()
        for connection in list(self.connections):
            connection.abort()
        if self._settling is not None:
            self._settling.cancel()

    def answered(self) -> None:
        """An answer is on its way: its book-keeping follows once it is written, and is over before the scheduler asks again."""
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        self._settling = None
        self.routes.settle()

    def _count_refused(self) -> None:
        self.routes.metrics.bad_requests["too-many-connections"].inc()
        self.routes.metrics.requests["503"].inc()


class HotConnection(asyncio.Protocol):
    """One peer; requests are answered in the order in which they come."""

    slot: Slot | None = None

    def __init__(self, listener: HotListener) -> None:
        self._listener = listener
        self._routes = listener.routes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._since_s = self._loop.time()
        self._path = b""
        self._parts: list[bytes] = []
        self._size = self._head = self._lines = 0
        self._quiet = 0
        """Bytes that the parser keeps to itself: a header as long as all of memory is told of at its end."""
        self._moved = False
        self._unread_s: float | None = None
        self.receiving = False

    # ---- connection ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._listener.connections.discard(self)
        if self.slot is not None:
            self.slot.leave()
        let_go(self._transport)
        del self._parser  # it holds our methods: see `let_go`
        if self.receiving:
            self._routes.metrics.bad_requests["disconnected"].inc()

    def pause_writing(self) -> None:
        """The peer does not read its answers: read no more requests."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The peer reads its answers again: go on reading requests."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Some bytes; whole requests are answered within this call."""
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            refusal = error.__context__
            if not isinstance(refusal, BadRequest):
                raise
            self._refuse(refusal)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(BadRequest("not-http"))
        else:
            if not self._moved:
                self._quiet += len(data)
                if self._quiet > HEAD_BYTES:
                    self._refuse(BadRequest("head-too-large", 431) if self._path and self._lines else BadRequest("url-too-long", 414))

    def check(self, now_s: float) -> None:
        """Cut a request not complete a second after its first byte, answers not taken, and a connection that sends nothing for long."""
        if self._transport.is_closing() or self._transport.get_write_buffer_size():
            if self._unread_s is None:
                self._unread_s = now_s
            elif now_s - self._unread_s > ANSWER_LIMIT_S:
                self._transport.abort()
            return
        self._unread_s = None
        if self.receiving and now_s - self._since_s >= RECEIPT_LIMIT_S:
            self._routes.metrics.bad_requests["too-slow"].inc()
            self.receiving = False
            self._send(408, b"", closing=True)
        elif now_s - self._since_s > IDLE_LIMIT_S:
            self._transport.close()

    def close(self) -> None:
        """Close the connection, which is between two requests."""
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once, whatever is under way."""
        self._transport.abort()

    # ---- one request, as the parser tells it -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request has come: forget the one before."""
        self._path, self._parts, self._size = b"", [], 0
        self._head = self._lines = self._quiet = 0
        self._moved = True
        self._since_s = self._loop.time()
        self.receiving = True

    def on_url(self, url: bytes) -> None:
        """Part of the request line."""
        self._path += url
        if len(self._path) > URL_BYTES:
            raise BadRequest("url-too-long", 414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line, or a trailer."""
        self._head += len(name) + len(value)
        self._lines += 1
        if self._head > HEAD_BYTES or self._lines > HEADERS:
            raise BadRequest("head-too-large", 431)
        lower = name.lower()
        if lower == b"content-length":
            if not value.isdigit() or len(value) > LENGTH_DIGITS or int(value) > self._routes.max_body_bytes:
                raise BadRequest("body-too-large", 413)
        elif lower == b"content-encoding":
            if value.lower() != b"identity":
                raise BadRequest("content-encoding")
        elif lower == b"expect" and value.lower() == b"100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, part: bytes) -> None:
        """Part of the body."""
        self._moved, self._quiet = True, 0
        self._size += len(part)
        if self._size > self._routes.max_body_bytes:
            raise BadRequest("body-too-large", 413)
        self._parts.append(part)

    def on_message_complete(self) -> None:
        """The last byte of a request has come: answer it."""
        self.receiving = False
        self._moved, self._quiet = True, 0
        self._since_s = self._loop.time()
        if self._transport.is_closing():
            return
        path, routes = self._path, self._routes
        if not routes.knows(path):
            self._send(404, encode_error("not-found"))
            return
        try:
            if self._parser.get_method() != b"POST":
                raise BadRequest("method", 405)
            answer = routes.answer(path, self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        except BadRequest as bad:
            self._refuse(bad)
            return
        except Exception as error:  # noqa: BLE001 - the edge: a stack trace could quote the pod
            _log.error("request failed", extra={"fields": {"error": type(error).__name__}})
            routes.metrics.bad_requests["internal-error"].inc()
            self._send(500, encode_error("internal-error"))
            return
        self._send(200, answer)
        self._listener.answered()

    def _refuse(self, bad: BadRequest) -> None:
        self.receiving = False
        self._routes.metrics.bad_requests[bad.reason].inc()
        self._send(bad.status, encode_error(bad.reason), closing=bad.reason in _CLOSING)

    def _send(self, status: int, body: bytes, *, closing: bool = False) -> None:
        closing = closing or self._listener.stopping or not self._parser.should_keep_alive()
        self._transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
            % (_LINES[status], len(body), b"connection: close\r\n" if closing else b"", body)
        )
        self._routes.metrics.requests[str(status)].inc()
        if closing:
            self._transport.close()
