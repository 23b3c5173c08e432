"""uvicorn's HTTP protocol with bounds on all that a stranger sends: ASGI middleware would learn of it too late."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tiphys_models.serving.acceptor import Acceptor, let_go
from tiphys_models.serving.bounds import (
    AHEAD,
    BODY_BYTES,
    HEAD_BYTES,
    HEADERS,
    IDLE_LIMIT_S,
    LENGTH_DIGITS,
    REFUSALS,
    URL_BYTES,
    ListenerBounds,
    Overdue,
    Patience,
    Peers,
    Slot,
    refusal,
)

_log = logging.getLogger(__name__)


class _TooMuchError(Exception):
    """A bound is reached; raised through the parser, which stops there."""

    def __init__(self, status: int) -> None:
        super().__init__(REFUSALS[status])
        self.status = status


class _BriefLog:
    """What uvicorn says of an application that failed: without the stack trace, which could quote what was sent, and not at all when the
    peer has gone in the middle of its answer, or a stranger could fill the log."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def error(self, message: str, *_: object, exc_info: BaseException | None = None) -> None:
        """Log an error, in the form in which uvicorn calls its logger."""
        if not self._transport.is_closing():
            fields = {"what": message.strip(), "error": type(exc_info).__name__}
            _log.error("request failed", extra={"fields": fields})


class BoundedProtocol(HttpToolsProtocol):
    """Cuts a connection that sends too much, too slowly, or does not take its answers."""

    on_refused: Callable[[int], None] | None = None
    """Set on a subclass: counts the refusal by its status."""
    max_body_bytes = BODY_BYTES
    slot: Slot | None = None

    _patience: Patience
    _head = _lines = _size = _quiet = 0
    """Counters of this request: bytes of its head, header lines, bytes of its body; and bytes that the parser still keeps to itself."""
    _moved = _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        self._patience = Patience(self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        if self.slot is not None:
            self.slot.leave()
        self.cycle = None  # type: ignore[assignment]  # it leads back to us
        let_go(self.transport)

    def data_received(self, data: bytes) -> None:
        """Bytes have come: parse them, and refuse the request once it exceeds a bound."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._patience.began(self.loop.time())
        self._moved = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause.status if isinstance(cause, _TooMuchError) else 400)
            return
        except httptools.HttpParserError:
            self._refuse(400)
            return
        except httptools.HttpParserUpgrade:
            return  # answered as if nothing had been said of it
        if not self._moved:
            # one header as long as all of memory is no header yet: the parser tells of it at its end
            self._quiet += len(data)
            if self._quiet > HEAD_BYTES:
                self._refuse(431 if self._head or self._lines else 414)

    def on_message_begin(self) -> None:
        """First byte of a request."""
        super().on_message_begin()
        self._head = self._lines = self._size = 0
        self._patience.since_s = self.loop.time()
        self._progress()
        if len(self.pipeline) >= AHEAD:
            raise _TooMuchError(429)

    def on_url(self, url: bytes) -> None:
        """Part of the request line."""
        super().on_url(url)
        if len(self.url) > URL_BYTES:
            raise _TooMuchError(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line, or a trailer."""
        self._head += len(name) + len(value)
        self._lines += 1
        if self._head > HEAD_BYTES or self._lines > HEADERS:
            raise _TooMuchError(431)
        if name.lower() == b"content-length" and (len(value) > LENGTH_DIGITS or int(value) > self.max_body_bytes):
            raise _TooMuchError(413)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: the request is worth a task from here on."""
        if self.slot is not None and not self.slot.spend():
            raise _TooMuchError(429)
        super().on_headers_complete()
        self.cycle.logger = _BriefLog(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        """Part of the body."""
        self._progress()
        self._size += len(body)
        if self._size > self.max_body_bytes:
            raise _TooMuchError(413)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Last byte of a request."""
        self._progress()
        self._patience.complete(self.loop.time())
        super().on_message_complete()

    def check(self, now_s: float) -> None:
        """Cut what takes too long."""
        transport = self.transport
        match self._patience.overdue(now_s, unread=bool(transport.is_closing() or transport.get_write_buffer_size())):
            case Overdue.ANSWER_TAKEN:
                self.abort()
            case Overdue.REQUEST:
                self._refuse(408)
            case Overdue.ANYTHING if self.cycle is None or self.cycle.response_complete:
                transport.close()

    def abort(self) -> None:
        """Hang up now; nobody answers into a closed connection, which would be a stack trace in the log for each."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.pipeline.clear()
        self.transport.abort()

    def _progress(self) -> None:
        self._moved, self._quiet = True, 0

    def _refuse(self, status: int) -> None:
        self._refused = True
        if type(self).on_refused is not None:
            type(self).on_refused(status)  # type: ignore[misc]
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or (not self.cycle.response_started and not self.pipeline):
            self.transport.write(refusal(status))
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # whoever still waits for the body learns that nobody waits for the answer
            self.cycle.message_event.set()
        self.pipeline.clear()
        self.transport.close()


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket whose connections send at once.

    Head and body of an answer are two writes: with Nagle's algorithm the second waits 40 ms for the acknowledgement of the first.
    asyncio switches it off only for sockets made with an explicit protocol number; connections inherit it from the listener.
    """
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _no_tls() -> ssl.SSLContext | None:
    return None


@dataclass(frozen=True, slots=True)
class Front:
    """What one listener of ours is beside its application."""

    bounds: ListenerBounds = field(default_factory=ListenerBounds)
    max_body_bytes: int = BODY_BYTES
    tls: Callable[[], ssl.SSLContext | None] = _no_tls
    """The context for the next handshake."""
    count: Callable[[int], None] = lambda status: None
    """Called with every refusal that the application does not hear of."""
    handshake_failed: Callable[[BaseException, str], None] = lambda error, peer: None
    """Called with every TLS handshake that fails, and the peer's address."""


_KEEP_ALIVE_S = int(IDLE_LIMIT_S)  # longer than Go's idle connections of 90 s: whoever closes first loses the next request
_DRAIN_S = 5
_STATUS_BACKLOG = 512
"""So many wait to be turned away before a probe is looked at: half a second."""


class BoundedServer(uvicorn.Server):
    """uvicorn behind our own acceptor. Signals are the process's business, not each listener's."""

    def __init__(self, app: Any, listener: socket.socket, front: Front, *, drain_s: int = _DRAIN_S) -> None:
        members = {"on_refused": staticmethod(front.count), "max_body_bytes": front.max_body_bytes}
        super().__init__(
            uvicorn.Config(
                app,
                http=type("CountingProtocol", (BoundedProtocol,), members),  # several servers live in one process
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # nobody stands before us whose word on addresses counts
                date_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=drain_s,
            )
        )
        self._listener, self._front = listener, front

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals alone: they are the process's business."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept from now on."""
        if self._front.max_body_bytes <= BODY_BYTES:
            # what waits unread in the kernel is thrown away on our time: megabytes take a millisecond
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, HEAD_BYTES)
            self._listener.listen(_STATUS_BACKLOG)
        acceptor = Acceptor(
            self._listener,
            self._connection,
            Peers(self._front.bounds),
            tls=self._front.tls,
            on_refused=lambda: self._front.count(503),
            on_handshake_failed=self._front.handshake_failed,
        )
        acceptor.start()
        self.servers = [acceptor]  # type: ignore[list-item]
        self.started = True

    def _connection(self) -> BoundedProtocol:
        return self.config.http_protocol_class(config=self.config, server_state=self.server_state, app_state={})  # type: ignore[call-arg, return-value]
