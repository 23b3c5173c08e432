"""Open placements: who counts where, and until when without another word."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """One open placement."""

    uid: str
    tenant: str
    namespace: str
    function: str
    cpu_milli: int
    memory_bytes: int
    node: str
    expires_s: float = math.inf


class Leases:
    """All open placements in order of expiry, and the uids of those finished last: a late renewal must not bring one back."""

    def __init__(self, lease_s: float, max_open: int) -> None:
        self.lease_s, self.max_open = lease_s, max_open
        self._open: OrderedDict[str, Lease] = OrderedDict()
        self._of_tenant: Counter[str] = Counter()
        self._finished: OrderedDict[tuple[str, str], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def uids(self) -> set[str]:
        """Of all open placements."""
        return set(self._open)

    def get(self, uid: str) -> Lease | None:
        """The open placement of that uid."""
        return self._open.get(uid)

    def full_for(self, tenant: str, max_open: int | None) -> bool:
        """Whether this tenant may open no more."""
        return len(self._open) >= self.max_open or (max_open is not None and self._of_tenant[tenant] >= max_open)

    def add(self, lease: Lease, now_s: float) -> None:
        """Open one."""
        lease.expires_s = now_s + self.lease_s
        self._open[lease.uid] = lease
        self._of_tenant[lease.tenant] += 1

    def renew(self, lease: Lease, now_s: float) -> None:
        """It counts for a whole lease again."""
        lease.expires_s = now_s + self.lease_s
        self._open.move_to_end(lease.uid)  # all last equally long, so this keeps the order

    def finish(self, tenant: str, uid: str) -> Lease | None:
        """Close it, and remember that; None if it was not open."""
        self._finished[tenant, uid] = None
        if len(self._finished) > self.max_open:
            self._finished.popitem(last=False)
        return self._drop(uid)

    def was_finished(self, tenant: str, uid: str) -> bool:
        """Whether this tenant finished it, as far as remembered."""
        return (tenant, uid) in self._finished

    def expire(self, now_s: float) -> list[Lease]:
        """Close those whose time is over."""
        over: list[Lease] = []
        while self._open and (first := next(iter(self._open.values()))).expires_s <= now_s:
            self._drop(first.uid)
            over.append(first)
        return over

    def forget(self) -> list[Lease]:
        """Close all of them, and remember none as finished: another process answers."""
        closed = list(self._open.values())
        self._open.clear()
        self._of_tenant.clear()
        self._finished.clear()
        return closed

    def _drop(self, uid: str) -> Lease | None:
        lease = self._open.pop(uid, None)
        if lease is not None:
            self._of_tenant[lease.tenant] -= 1
            if not self._of_tenant[lease.tenant]:
                del self._of_tenant[lease.tenant]
        return lease
