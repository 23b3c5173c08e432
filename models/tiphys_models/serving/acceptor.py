"""Accepting connections by hand, so that who is too many is turned away before TLS, parser or task cost anything.

An event loop's own server takes all that wait in one go: ten thousand connections a second then keep it from everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from tiphys_models.serving.bounds import HANDSHAKE_LIMIT_S, Peers, Slot, refusal

_AT_ONCE = 16
_REFUSED_AT_ONCE = 2
_REST_S = 0.002
"""After turning somebody away: a thousand a second at most, two at a time, so that honest peers who queue behind a flood wait for a second
at worst, and what else the loop does for a tenth of a millisecond."""
_STARVED_S = 0.1
"""When the process has no file descriptors left."""
_SWEEP_S = 0.25
_TOO_MANY = refusal(503)


class Guarded(Protocol):
    """A connection that keeps its own deadlines. It is an asyncio protocol, too, and leaves its slot when it is lost."""

    slot: Slot | None

    def check(self, now_s: float) -> None:
        """Called a few times a second: cut what takes too long."""


class Acceptor:
    """One listening socket. Every connection is made with the TLS context of that moment."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], Guarded],
        peers: Peers,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
        on_handshake_failed: Callable[[BaseException, str], None] = lambda error, peer: None,
    ) -> None:
        self._listener, self._make, self._tls = listener, make, tls
        self._peers, self._on_refused, self._on_handshake_failed = peers, on_refused, on_handshake_failed
        self._connections: dict[Slot, Guarded] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)
        self._sweep()

    def close(self) -> None:
        """Accept no more; what is connected stays."""
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
        for timer in self._timers.values():
            timer.cancel()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until nobody is in the middle of a handshake."""
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _accept(self) -> None:
        refused = 0
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:  # no descriptors or no memory: trying again at once would be all that this process does
                self._on_refused()
                self._rest(_STARVED_S)
                return
            slot = self._peers.admit(str(address[0]))
            if slot is None:
                self._refuse(connection)
                refused += 1
                if refused == _REFUSED_AT_ONCE:
                    break
                continue
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._connect(connection, slot))
            slot.cut_by(task.cancel)
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        if refused:
            self._rest(_REST_S)

    def _refuse(self, connection: socket.socket) -> None:
        self._on_refused()
        with contextlib.suppress(OSError):
            if self._tls() is None:
                connection.setblocking(False)
                connection.send(_TOO_MANY)
            connection.close()

    def _rest(self, for_s: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener.fileno())
        self._timers["rest"] = loop.call_later(for_s, lambda: loop.add_reader(self._listener.fileno(), self._accept))

    async def _connect(self, connection: socket.socket, slot: Slot) -> None:
        guarded: list[Guarded] = []

        def make() -> asyncio.BaseProtocol:
            guarded.append(self._make())
            guarded[0].slot = slot
            return guarded[0]  # type: ignore[return-value]

        context = self._tls()
        limit_s = HANDSHAKE_LIMIT_S if context is not None else None
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                make, connection, ssl=context, ssl_handshake_timeout=limit_s
            )
        except BaseException as error:
            slot.leave()
            connection.close()
            if not isinstance(error, OSError):  # TLS errors and time-outs are: a stranger's handshake is not worth a line in the log
                raise
            if context is not None:
                self._on_handshake_failed(error, slot.peer)
            return
        if not slot.over:
            slot.cut_by(transport.abort)
            self._connections[slot] = guarded[0]

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for slot, connection in list(self._connections.items()):
            if slot.over:
                del self._connections[slot]
            else:
                connection.check(now_s)
        self._timers["sweep"] = loop.call_later(_SWEEP_S, self._sweep)
