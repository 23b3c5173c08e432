"""Open placements: which calls count on which nodes, and until when if they are not renewed."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from tiphys_extender.serve.kept import Kept


@dataclass(slots=True)
class CallLease:
    """One open placement of a call, which its caller has to renew."""

    uid: str
    tenant: str
    namespace: str
    function: str
    cpu_milli: int
    memory_bytes: int
    node: str
    expires_s: float = math.inf


@dataclass(slots=True)
class HeldByTenant:
    """What one tenant holds: all its open placements together."""

    placements: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


class Leases:
    """All open placements in order of expiry, and the uids of those finished last: a late renewal must not bring one back."""

    def __init__(self, lease_s: float, max_open: int) -> None:
        self.lease_s, self.max_open = lease_s, max_open
        self._open: OrderedDict[str, CallLease] = OrderedDict()
        self._of_tenant: dict[str, HeldByTenant] = {}
        self._finished: Kept[bool] = Kept(max_open)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def uids(self) -> set[str]:
        """Uids of all open placements."""
        return set(self._open)

    def get(self, uid: str) -> CallLease | None:
        """The open placement of that uid."""
        return self._open.get(uid)

    def held_by(self, tenant: str) -> HeldByTenant:
        """What a tenant has open."""
        return self._of_tenant.get(tenant) or HeldByTenant()

    def full_for(self, tenant: str, max_open: int) -> bool:
        """Whether this tenant may open no more."""
        return len(self._open) >= self.max_open or self.held_by(tenant).placements >= max_open

    def add(self, lease: CallLease, now_s: float) -> None:
        """Open a placement, which expires unless it is renewed."""
        lease.expires_s = now_s + self.lease_s
        self._open[lease.uid] = lease
        self._count(lease, 1)

    def resize(self, lease: CallLease, cpu_milli: int, memory_bytes: int) -> None:
        """Change what an open placement takes."""
        self._count(lease, -1)
        lease.cpu_milli, lease.memory_bytes = cpu_milli, memory_bytes
        self._count(lease, 1)

    def renew(self, lease: CallLease, now_s: float) -> None:
        """Renew an open placement for a whole lease."""
        lease.expires_s = now_s + self.lease_s
        self._open.move_to_end(lease.uid)  # all last equally long, so this keeps the order

    def finish(self, tenant: str, uid: str) -> CallLease | None:
        """Close it, and remember that; None if it was not open."""
        self._finished.put(tenant, uid, True)
        return self._drop(uid)

    def was_finished(self, tenant: str, uid: str) -> bool:
        """Whether this tenant finished it, as far as remembered."""
        return self._finished.get(tenant, uid) is not None

    def expire(self, now_s: float) -> list[CallLease]:
        """Close those whose time is over."""
        over: list[CallLease] = []
        while self._open and (first := next(iter(self._open.values()))).expires_s <= now_s:
            self._drop(first.uid)
            over.append(first)
        return over

    def forget(self) -> list[CallLease]:
        """Close all of them, and remember none as finished: another process answers."""
        closed = list(self._open.values())
        self._open.clear()
        self._of_tenant.clear()
        self._finished.clear()
        return closed

    def _drop(self, uid: str) -> CallLease | None:
        lease = self._open.pop(uid, None)
        if lease is not None:
            self._count(lease, -1)
        return lease

    def _count(self, lease: CallLease, sign: int) -> None:
        held = self._of_tenant.setdefault(lease.tenant, HeldByTenant())
        held.placements += sign
        held.cpu_milli += sign * lease.cpu_milli
        held.memory_bytes += sign * lease.memory_bytes
        if not held.placements:
            del self._of_tenant[lease.tenant]
