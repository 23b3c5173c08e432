"""Calls that were told "not yet": who waits, since when, and in which order.

A caller that waits asks the same again, under the same idempotency key, and keeps its place. One that has fallen silent has gone: its
place is given up, nobody waits behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

ASK_AGAIN_S = 0.2
"""How often callers should ask: as often as a scheduler that is woken by every end, to within a hundredth of the gain."""
GONE_S = 2.0
"""Silence after which a caller has gone."""
MOST_OF_A_FUNCTION = 200
"""Calls of one function that wait at once; whoever comes then goes at once: so many instances do not come free within the bound."""


@dataclass(slots=True)
class Ticket:
    """A call's place among those of its function that wait."""

    uid: str
    tenant: str
    function: str
    since_s: float
    asked_s: float


class WaitingRoom:
    """Tickets by caller's key, in the order in which they came."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Ticket] = {}
        self._waiting: dict[str, dict[str, None]] = {}
        """function -> uids, oldest first."""
        self._of_tenant: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._of)

    def find(self, tenant: str, key: str | None) -> Ticket | None:
        """The place of a call that has asked before."""
        return None if key is None else self._of.get((tenant, key))

    def before(self, function: str, ticket: Ticket | None) -> int:
        """How many calls of the function wait in front of this one; all of them in front of one without a ticket."""
        count = 0
        for uid in self._waiting.get(function, ()):
            if ticket is not None and uid == ticket.uid:
                break
            count += 1
        return count

    def has_room(self, tenant: str, function: str, most_of_tenant: int) -> bool:
        """Whether another call may wait."""
        return len(self._waiting.get(function, ())) < MOST_OF_A_FUNCTION and self._of_tenant.get(tenant, 0) < most_of_tenant

    def enter(self, tenant: str, key: str, uid: str, function: str, now_s: float) -> Ticket:
        """A call begins to wait."""
        ticket = self._of[tenant, key] = Ticket(uid, tenant, function, now_s, now_s)
        self._waiting.setdefault(function, {})[uid] = None
        self._of_tenant[tenant] = self._of_tenant.get(tenant, 0) + 1
        return ticket

    def leave(self, tenant: str, key: str) -> None:
        """A call waits no longer."""
        ticket = self._of.pop((tenant, key), None)
        if ticket is None:
            return
        self._waiting[ticket.function].pop(ticket.uid, None)
        if not self._waiting[ticket.function]:
            del self._waiting[ticket.function]
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    def silent(self, now_s: float) -> int:
        """Callers that have fallen silent leave; how many."""
        gone = [key for key, ticket in self._of.items() if now_s - ticket.asked_s > GONE_S]
        for tenant, key in gone:
            self.leave(tenant, key)
        return len(gone)

    def clear(self) -> None:
        """Another process answers: everybody waits there."""
        self._of.clear()
        self._waiting.clear()
        self._of_tenant.clear()
