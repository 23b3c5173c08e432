"""The ledger: open leases, the load that follows from them, and how much may be given away. Pure: time is an argument."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiphys_extender.serve.kept import Kept
from tiphys_extender.streams.tokens import Counts, Grant
from tiphys_models.api.stream_policy import LONGEST_LEASE_S
from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.agent import BINS, bin_of

_MAX_RELEASED = 100_000
_ROUNDING_QPS = 1e-6
SLACK = 2.0
"""A client may send so many times the rate that it has declared before its counts are not believed."""
BATCH = 20.0
"""Queries that may come at once, on top."""
CREDIT_S = 60.0
"""Longest silence that counts: a client that says nothing for longer gets no more credit for its next report."""


@dataclass(slots=True)
class Booking:
    """One open lease and what is known of its stream."""

    grant: Grant
    place: int
    """Index of its offer among those known now; -1: the offer is gone, the stream is not told to stop."""
    bin: int
    fresh: bool
    """Bound by this process, not taken over from a token."""
    heard_s: float
    """When its client last said how many queries were served; what would have come since is unknown."""
    credit: float
    """Queries that it can have sent and has not told of, as of `credit_s`."""
    credit_s: float

    def believed(self, said: Counts, now_s: float) -> Counts:
        """The part of a client's reported counts that is believed: no more than its rate allows."""
        most = SLACK * self.grant.rate_qps * CREDIT_S + BATCH
        self.credit = min(self.credit + SLACK * self.grant.rate_qps * max(now_s - self.credit_s, 0.0), most)
        self.credit_s = now_s
        found = said.at_most(self.credit)
        self.credit -= found.total
        return found


class Ledger:
    """All open leases of one access site in order of expiry, and the ids of those released last: a late renewal must not bring one back."""

    def __init__(self) -> None:
        self.open: OrderedDict[str, Booking] = OrderedDict()
        self.active = np.zeros(BINS)
        """Queries a second by bin of delay and rate."""
        self._of_tenant: Counter[str] = Counter()
        self._site_qps: dict[tuple[str, str], tuple[int, float]] = {}
        """Streams and load by tenant and site."""
        self._released: Kept[bool] = Kept(_MAX_RELEASED)
        self.align(())

    def align(self, offers: Sequence[str]) -> None:
        """Other offers than before: the load follows from the leases."""
        self._place = {name: place for place, name in enumerate(offers)}
        self.load_qps = np.zeros(len(offers))
        self.fresh_qps = np.zeros(len(offers))
        """Bound by this process."""
        self.streams = np.zeros(len(offers), np.int64)
        for booking in self.open.values():
            booking.place = self._place.get(booking.grant.offer, -1)
            self._count(booking, 1)

    def within(self, most_qps: FloatArray) -> bool:
        """Whether all that is bound is known to lie below this load, offer by offer; of offers that are gone nothing is known."""
        return int(self.streams.sum()) == len(self.open) and bool((self.load_qps <= most_qps + _ROUNDING_QPS).all())

    def get(self, uid: str) -> Booking | None:
        """The open lease of that id."""
        return self.open.get(uid)

    def held_by(self, tenant: str) -> int:
        """How many leases a tenant has."""
        return self._of_tenant[tenant]

    def load_at(self, tenant: str, site: str) -> float:
        """What a tenant has bound at a site."""
        return self._site_qps.get((tenant, site), (0, 0.0))[1]

    def add(self, grant: Grant, now_s: float, *, fresh: bool) -> Booking:
        """A new stream, or one that another process bound."""
        place = self._place.get(grant.offer, -1)
        # of a stream that another process bound nobody knows when it last told of its queries: at its last renewal at the latest
        credit = BATCH if fresh else BATCH + SLACK * grant.rate_qps * LONGEST_LEASE_S
        booking = Booking(grant, place, int(bin_of(grant.max_delay_ms, grant.rate_qps)), fresh, now_s, credit, now_s)
        self.open[grant.id] = booking
        self._of_tenant[grant.tenant] += 1
        self._count_site(grant, 1)
        self._count(booking, 1)
        return booking

    def renew(self, booking: Booking, expires_s: float, counts: Counts | None, now_s: float) -> Counts:
        """Renew a lease until then. Returns what its client reports on top of the last time."""
        grant, new = booking.grant, Counts()
        if counts is not None:
            new, booking.heard_s = booking.believed(counts.since(grant.counts), now_s), now_s
        # what was not believed may be told again when it can be true; a count that went back starts from there
        known = grant.counts if counts is None else Counts(*map(min, grant.counts, counts)).plus(new)
        booking.grant = grant._replace(expires_s=expires_s, counts=known)
        self.open.move_to_end(grant.id)
        return new

    def release(self, tenant: str, uid: str) -> Booking | None:
        """Over, and remembered as such; None if this tenant had it not open."""
        self._released.put(tenant, uid, True)
        booking = self.open.get(uid)
        return self._drop(uid) if booking is not None and booking.grant.tenant == tenant else None

    def was_released(self, tenant: str, uid: str) -> bool:
        """Whether this tenant released it, as far as remembered."""
        return self._released.get(tenant, uid) is not None

    def expire(self, now_s: float) -> list[Booking]:
        """Close those whose time is over. In order of renewal: right after the length of leases was changed some wait for others."""
        over: list[Booking] = []
        while self.open and (first := next(iter(self.open.values()))).grant.expires_s <= now_s:
            self._drop(first.grant.id)
            over.append(first)
        return over

    def _drop(self, uid: str) -> Booking | None:
        booking = self.open.pop(uid, None)
        if booking is not None:
            self._of_tenant[booking.grant.tenant] -= 1
            if not self._of_tenant[booking.grant.tenant]:
                del self._of_tenant[booking.grant.tenant]
            self._count_site(booking.grant, -1)
            self._count(booking, -1)
        return booking

    def _count_site(self, grant: Grant, sign: int) -> None:
        key = grant.tenant, grant.offer.partition("/")[0]
        streams, qps = self._site_qps.get(key, (0, 0.0))
        if streams + sign:
            self._site_qps[key] = streams + sign, qps + sign * grant.added_qps
        else:
            del self._site_qps[key]

    def _count(self, booking: Booking, sign: int) -> None:
        place, grant = booking.place, booking.grant
        self.active[booking.bin] = max(self.active[booking.bin] + sign * grant.rate_qps, 0.0)
        if place < 0:
            return
        self.streams[place] += sign
        if self.streams[place] == 0:  # sums of what was added and taken away do not end at nothing by themselves
            self.load_qps[place] = self.fresh_qps[place] = 0.0
            return
        self.load_qps[place] += sign * grant.added_qps
        if booking.fresh:
            self.fresh_qps[place] = max(self.fresh_qps[place] + sign * grant.added_qps, 0.0)


def others_load(names: Mapping[str, int], count: int, reports: Sequence[Mapping[str, float]]) -> FloatArray:
    """What binders of other access sites have bound, offer by offer; offers that are not known here count nowhere."""
    load = np.zeros(count)
    for report in reports:
        for name, qps in report.items():
            if (place := names.get(name)) is not None:
                load[place] += qps
    return load


def while_recovering(
    load_qps: FloatArray, fresh_qps: FloatArray, capacity_qps: FloatArray, promised: float | None, lowered: float
) -> FloatArray:
    """The load to count with under the ceiling `lowered` until every lease of former processes was renewed or has ended.

    Who is silent may still hold what a former process gave away: no offer more than the share `promised`, if that process left
    word that it kept to it. So this one gives away what lies above that share only, however little load it has heard of, and nothing
    without such a word: one that was still recovering, or followed one that was, may have given away the whole.
    """
    certainly_free = np.zeros_like(load_qps) if promised is None else np.maximum((1.0 - promised) * capacity_qps - fresh_qps, 0.0)
    return np.asarray(np.maximum(load_qps, lowered * capacity_qps - certainly_free))
