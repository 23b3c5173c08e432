"""Accepting connections by hand, so that who is too many is turned away before TLS, parser or task cost anything.

An event loop's own server takes all that wait in one go: ten thousand connections a second then keep it from everything else. Here a
thread accepts and turns away. It works in the kernel nearly all of its time, and the loop hears only of whom it lets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tiphys_models.serving.bounds import HANDSHAKE_LIMIT_S, Peers, Slot, refusal

_REFUSED_AT_ONCE = 4
_REST_S = 0.004
"""After turning so many away: a thousand a second at most, so that a flood costs little and who queues behind it hardly waits."""
_LAST_WORDS_S = 1.0
"""The thread may be in a pause between two lots of refusals."""
_STARVED_S = 0.1
"""When the process has no file descriptors left."""
_SWEEP_S = 0.25
_TOO_MANY = refusal(503)


class GuardedConnection(Protocol):
    """A connection that keeps its own deadlines. It is an asyncio protocol, too, and leaves its slot when it is lost."""

    slot: Slot | None

    def check(self, now_s: float) -> None:
        """Called a few times a second: cut what takes too long."""

    def abort(self) -> None:
        """Abort the connection now, whatever is being sent."""


def let_go(transport: asyncio.BaseTransport) -> None:
    """Free a lost connection's transport at once: nothing leads back to itself any more.

    Reference cycles wait for the garbage collector, which comes seldom to a process that keeps thousands of objects; whoever connects
    and hangs up thousands of times a second would fill its memory by then. asyncio's own transport holds a method of itself, by which
    it reads; uvloop's, which is no object of Python's, does not.
    """
    getattr(transport, "__dict__", {}).pop("_read_ready_cb", None)


class Acceptor:
    """One listening socket. Every connection is made with the TLS context of that moment."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], GuardedConnection],
        peers: Peers,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        on_refused: Callable[[], None] = lambda: None,
        on_handshake_failed: Callable[[BaseException, str], None] = lambda error, peer: None,
    ) -> None:
        self._listener, self._make, self._tls = listener, make, tls
        self._peers, self._on_refused, self._on_handshake_failed = peers, on_refused, on_handshake_failed
        self._connections: dict[Slot, GuardedConnection] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(True)
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._thread.start()
        self._sweep()

    def close(self) -> None:
        """Accept no more; what is connected stays."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._listener.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Wait until no handshake is under way, and what was accepted last has been closed."""
        end_s = self._loop.time() + _LAST_WORDS_S
        while self._thread is not None and self._thread.is_alive() and self._loop.time() < end_s:  # noqa: ASYNC110 - a thread that ends tells nobody
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # what the thread has handed over is looked at
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _accept(self) -> None:
        """The accepting thread: each new connection is admitted or refused."""
        refused = 0
        while not self._closed.is_set():
            try:
                connection, address = self._listener.accept()
            except (InterruptedError, ConnectionAbortedError):
                continue
            except OSError:  # closed; or no descriptors or no memory: trying again at once would be all that this process does
                if not self._closed.wait(_STARVED_S):
                    self._on_refused()
                continue
            slot = self._peers.admit(str(address[0]))
            if slot is not None:
                self._hand_over(connection, slot)
                continue
            self._refuse(connection)
            refused += 1
            if refused % _REFUSED_AT_ONCE == 0:
                self._closed.wait(_REST_S)

    def _hand_over(self, connection: socket.socket, slot: Slot) -> None:
        connection.setblocking(False)
        try:
            self._loop.call_soon_threadsafe(self._admit, connection, slot)
        except RuntimeError:  # the loop has ended
            slot.leave()
            connection.close()

    def _refuse(self, connection: socket.socket) -> None:
        self._on_refused()
        with contextlib.suppress(OSError):
            if self._tls() is None:
                connection.setblocking(False)
                connection.send(_TOO_MANY)
            connection.close()

    def _admit(self, connection: socket.socket, slot: Slot) -> None:
        if self._closed.is_set():
            slot.leave()
            connection.close()
            return
        task = self._loop.create_task(self._connect(connection, slot))
        slot.cut_by(lambda: self._loop.call_soon_threadsafe(task.cancel))
        self._connecting.add(task)
        task.add_done_callback(partial(self._connected, connection, slot))

    def _connected(self, connection: socket.socket, slot: Slot, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if task.cancelled():  # perhaps before its first step, in which case nobody has seen the connection yet
            slot.leave()
            connection.close()

    async def _connect(self, connection: socket.socket, slot: Slot) -> None:
        guarded: list[GuardedConnection] = []

        def make() -> asyncio.BaseProtocol:
            guarded.append(self._make())
            guarded[0].slot = slot
            return guarded[0]  # type: ignore[return-value]

        context = self._tls()
        limit_s = HANDSHAKE_LIMIT_S if context is not None else None
        try:
            await self._loop.connect_accepted_socket(make, connection, ssl=context, ssl_handshake_timeout=limit_s)
        except BaseException as error:
            slot.leave()
            connection.close()
            if not isinstance(error, OSError):  # TLS errors and time-outs are: a stranger's handshake is not worth a line in the log
                raise
            if context is not None:
                self._on_handshake_failed(error, slot.peer)
            return
        if self._closed.is_set():  # it came too late for whoever ends the connections
            guarded[0].abort()
        elif not slot.over:
            slot.cut_by(lambda: self._loop.call_soon_threadsafe(guarded[0].abort))
            self._connections[slot] = guarded[0]

    def _sweep(self) -> None:
        now_s = self._loop.time()
        for slot, connection in list(self._connections.items()):
            if slot.over:
                del self._connections[slot]
            else:
                connection.check(now_s)
        self._sweeping = self._loop.call_later(_SWEEP_S, self._sweep)
