"""uvicorn's HTTP protocol with a deadline for receiving a request: ASGI middleware would learn of a slow one too late."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

RECEIPT_LIMIT_S = 1.0
IDLE_LIMIT_S = 120.0
"""Connections that never send anything go after the same time as those kept alive between calls."""

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """Cuts a connection whose request is not complete one second after its first byte."""

    on_too_slow: Callable[[], None] | None = None
    """Set on a subclass: counts the cut."""

    _receipt: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        # uvicorn arms this timer only after an answer; it is disarmed by the first byte
        self.timeout_keep_alive_task = self.loop.call_later(IDLE_LIMIT_S, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._disarm()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """First byte of a request."""
        super().on_message_begin()
        self._disarm()
        self._receipt = self.loop.call_later(RECEIPT_LIMIT_S, self._too_slow)

    def on_message_complete(self) -> None:
        """Last byte of a request."""
        self._disarm()
        super().on_message_complete()

    def _disarm(self) -> None:
        if self._receipt is not None:
            self._receipt.cancel()
            self._receipt = None

    def _too_slow(self) -> None:
        self._receipt = None
        if self.transport.is_closing():
            return
        if type(self).on_too_slow is not None:
            type(self).on_too_slow()  # type: ignore[misc]
        if self.cycle is None or not self.cycle.response_started:
            self.transport.write(_TOO_SLOW)
        self.transport.close()


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket whose connections send at once.

    Head and body of an answer are two writes: with Nagle's algorithm the second waits 40 ms for the acknowledgement of the first.
    asyncio switches it off only for sockets made with an explicit protocol number; connections inherit it from the listener.
    """
    listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def counting_protocol(count: Callable[[], None]) -> type[BoundedProtocol]:
    """The protocol with a counter of its own: several servers live in one process."""
    return type("CountingProtocol", (BoundedProtocol,), {"on_too_slow": staticmethod(count)})
