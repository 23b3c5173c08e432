"""How much strangers may cost a listener: bytes, headers, connections, requests and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address

URL_BYTES = 8_192
HEAD_BYTES = 32_768
"""Request line, headers and trailers of one request together."""
HEADERS = 100
BODY_BYTES = 65_536
"""Most bytes of a body, where requests need none at all; listeners that read bodies have limits of their own."""
LENGTH_DIGITS = 12
"""Most digits of a content-length: int() refuses thousands of digits with an error of its own, and no body has a terabyte."""
RECEIPT_LIMIT_S = 1.0
"""Most seconds between the first byte of a request and its last."""
ANSWER_LIMIT_S = 10.0
"""Most seconds for a peer to take an answer out of our buffer, and for a closed connection to end."""
IDLE_LIMIT_S = 120.0
"""Connections that never send anything go after the same time as those kept alive between calls."""
HANDSHAKE_LIMIT_S = 3.0
AHEAD = 8
"""Requests that a connection may send before the first is answered."""

REFUSALS = {
    408: "too-slow",
    413: "body-too-large",
    414: "url-too-long",
    429: "too-many-requests",
    431: "head-too-large",
    503: "too-many-connections",
}
"""The word that a refusal is counted under, by status."""
LINES = {
    400: b"400 Bad Request",
    408: b"408 Request Timeout",
    413: b"413 Content Too Large",
    414: b"414 URI Too Long",
    429: b"429 Too Many Requests\r\nretry-after: 1",
    431: b"431 Request Header Fields Too Large",
    503: b"503 Service Unavailable\r\nretry-after: 1",
}

_PEERS_KNOWN = 4_096
"""Peers whose rate is remembered; beyond it those go that have not asked for a second."""


@dataclass(frozen=True, slots=True)
class ListenerBounds:
    """Bounds on all connections and requests of one listener."""

    connections: int = 1_024
    connections_a_peer: int = 64
    per_second: float = 0.0
    """Requests, and connections, that one peer may begin in a second; 0: as many as it likes."""
    burst: float = 100.0
    """How many of them at once, after a pause."""
    loopback_is_free: bool = False
    """Whether peers of the same pod are held to the total only: a scheduler keeps as many connections as it likes."""


def refusal(status: int, reason: str = "") -> bytes:
    """The whole answer to a request that is not read any further; the connection ends with it."""
    body = b'{"error":"%b"}' % (reason or REFUSALS.get(status, "not-http")).encode()
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (
        LINES[status],
        len(body),
        body,
    )


class Overdue(Enum):
    """What a connection has kept us waiting for too long."""

    ANSWER_TAKEN = "answer"
    REQUEST = "request"
    ANYTHING = "anything"


class Patience:
    """The times of one connection: how long its peer may take over a request, over taking an answer, and over saying anything."""

    __slots__ = ("_unread_s", "idle_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.idle_s = now_s
        """When a whole request came last, or the connection."""
        self.since_s: float | None = None
        """When the first byte came of what is not a whole request yet."""
        self._unread_s: float | None = None

    def began(self, now_s: float) -> None:
        """A request has begun, or bytes have come of which nobody knows yet whether they are one."""
        if self.since_s is None:
            self.since_s = now_s

    def complete(self, now_s: float) -> None:
        """A request is whole."""
        self.since_s, self.idle_s = None, now_s

    def overdue(self, now_s: float, *, unread: bool) -> Overdue | None:
        """What has taken too long; `unread`: whether the peer has not yet taken what we sent, or the end of the connection."""
        if unread:
            if self._unread_s is None:
                self._unread_s = now_s
            return Overdue.ANSWER_TAKEN if now_s - self._unread_s > ANSWER_LIMIT_S else None
        self._unread_s = None
        if self.since_s is not None and now_s - self.since_s >= RECEIPT_LIMIT_S:
            return Overdue.REQUEST
        return Overdue.ANYTHING if now_s - self.idle_s > IDLE_LIMIT_S else None


class Slot:
    """One connection's place among those that there may be."""

    __slots__ = ("_cut", "_peers", "over", "peer")

    def __init__(self, peers: Peers, peer: str) -> None:
        self.peer = peer
        self._peers = peers
        self.over = False
        self._cut: Callable[[], object] | None = None

    def cut_by(self, cut: Callable[[], object]) -> None:
        """Say how the connection is ended if another needs its place more."""
        self._cut = cut

    def cut(self) -> None:
        """End the connection for another's sake."""
        cut = self._cut
        self.leave()
        if cut is not None:
            cut()

    def spend(self) -> bool:
        """Whether the peer may begin one more request now."""
        return self._peers.spend(self.peer)

    def leave(self) -> None:
        """The connection is over; saying so twice does no harm."""
        # it leads back to the connection: a circle waits for the collector, and floods make thousands a second
        self._cut = None
        self._peers.left(self)


class Peers:
    """Peers that are connected to a listener, and how fast each asks. A thread admits; connections leave in the event loop."""

    def __init__(self, bounds: ListenerBounds, now_s: Callable[[], float] = time.monotonic) -> None:
        self._bounds, self._now_s = bounds, now_s
        self._slots: dict[str, dict[Slot, None]] = {}
        self._spent_until_s: dict[str, float] = {}
        self._lock = threading.RLock()
        self.open = 0

    def admit(self, peer: str) -> Slot | None:
        """A place for a new connection; None: there are too many of this peer, or it comes too fast.

        When all places are taken, the oldest connection of whoever holds most makes room: one peer alone cannot keep others out.
        """
        with self._lock:
            mine = self._slots.get(peer, {})
            free = self._bounds.loopback_is_free and _is_loopback(peer)
            if not free and (len(mine) >= self._bounds.connections_a_peer or not self.spend(peer)):
                return None
            if self.open >= self._bounds.connections:
                fullest = max(self._slots.values(), key=len)
                if len(fullest) <= len(mine) + 1:
                    return None
                next(iter(fullest)).cut()
            slot = Slot(self, peer)
            self._slots.setdefault(peer, {})[slot] = None
            self.open += 1
            return slot

    def left(self, slot: Slot) -> None:
        """A place is free again."""
        with self._lock:
            if slot.over:
                return
            slot.over = True
            mine = self._slots[slot.peer]
            del mine[slot]
            if not mine:
                del self._slots[slot.peer]
            self.open -= 1

    def spend(self, peer: str) -> bool:
        """Whether one more request, or connection, of this peer is within its rate."""
        rate = self._bounds.per_second
        if not rate:
            return True
        now_s = self._now_s()
        with self._lock:
            until_s = max(self._spent_until_s.get(peer, now_s), now_s)
            if until_s - now_s > self._bounds.burst / rate:
                return False
            if len(self._spent_until_s) >= _PEERS_KNOWN and peer not in self._spent_until_s:
                self._forget(now_s)
            self._spent_until_s[peer] = until_s + 1 / rate
            return True

    def _forget(self, now_s: float) -> None:
        kept = {peer: until_s for peer, until_s in self._spent_until_s.items() if until_s > now_s}
        # with thousands of peers that all ask right now nobody's past is worth more than the memory
        self._spent_until_s = kept if len(kept) < _PEERS_KNOWN else {}


def _is_loopback(peer: str) -> bool:
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
