"""What has come and how it ended, window by window: what agents look at, and what the last minute was like."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tiphys_extender.streams.tokens import Counts
from tiphys_models.api.stream_summary import QueryCounts
from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.agent import BINS

MINUTE_S = 60.0


@dataclass(slots=True)
class Tally:
    """Counts of one window."""

    since_s: float
    incoming: FloatArray = field(default_factory=lambda: np.zeros(BINS))
    """Queries a second that were asked for, bound or not, by bin of delay and rate."""
    asked_qps: float = 0.0
    rejected_qps: float = 0.0
    """Part of `asked_qps` for streams that were not bound, whatever the reason."""
    counts: Counts = field(default_factory=Counts)
    unknown: float = 0.0
    """Queries of which no client said what became."""
    parts: tuple[Tally, ...] = ()
    """Parts of the window by tenant; empty if there was one tenant only."""

    def ask(self, place: int, rate_qps: float, *, bound: bool) -> None:
        """Count a stream that asked for an offer, bound or not."""
        self.incoming[place] += rate_qps
        self.asked_qps += rate_qps
        if not bound:
            self.rejected_qps += rate_qps

    def report(self, counts: Counts) -> None:
        """Count queries that clients report, by how they ended."""
        self.counts = self.counts.plus(counts)

    def at_most(self, asked_qps: float) -> Tally:
        """So much asked for in all, in the same proportions."""
        if self.asked_qps <= asked_qps:
            return self
        kept = asked_qps / self.asked_qps
        return replace(self, incoming=self.incoming * kept, asked_qps=asked_qps, rejected_qps=self.rejected_qps * kept)


@dataclass(frozen=True, slots=True)
class Shares:
    """They add up to one. Rejected is a share of the queries a second that were asked for (nobody knows how long a stream that was not
    bound would have lasted); the rest is split as clients reported."""

    success: float
    reject: float
    failure: float


def shares(tallies: Sequence[Tally]) -> Shares:
    """Shares of these windows together; all success where nothing was asked for. No tenant counts for more than all others of a window."""
    asked = rejected = reported = failed = 0.0
    for parts in (tally.parts or (tally,) for tally in tallies):
        for part, weight in zip(parts, _weights([part.asked_qps for part in parts]), strict=True):
            asked += weight * part.asked_qps
            rejected += weight * part.rejected_qps
        for part, weight in zip(parts, _weights([part.counts.total for part in parts]), strict=True):
            reported += weight * part.counts.total
            failed += weight * (part.counts.late + part.counts.refused)
    reject = rejected / asked if asked else 0.0
    failure = failed / reported if reported else 0.0
    return Shares((1 - reject) * (1 - failure), reject, (1 - reject) * failure)


def _weights(amounts: Sequence[float]) -> list[float]:
    total = sum(amounts)
    return [1.0 if amount <= (others := total - amount) or others <= 0 else others / amount for amount in amounts]


def counted(tallies: Sequence[Tally]) -> QueryCounts:
    """The same as numbers of queries. Streams that were not bound count as if they had sent as much for their
    rates as those that were."""
    asked, rejected, counts = _sums(tallies)
    bound = asked - rejected
    reject = rejected * (counts.total / bound if bound > 0 and counts.total else 1.0)
    unknown = sum(tally.unknown for tally in tallies)
    return QueryCounts(success=counts.served, failure=counts.late + counts.refused, reject=round(reject), unknown=round(unknown))


def _sums(tallies: Sequence[Tally]) -> tuple[float, float, Counts]:
    counts = Counts(*(sum(column) for column in zip(*(t.counts for t in tallies), strict=True)))
    return sum(t.asked_qps for t in tallies), sum(t.rejected_qps for t in tallies), counts


class Windows:
    """The one that runs, by tenant, and those of the last minute."""

    def __init__(self, now_s: float) -> None:
        self._since_s = now_s
        self._now: dict[str, Tally] = {}
        self._past: deque[Tally] = deque()

    def of(self, tenant: str) -> Tally:
        """What this tenant has in the one that runs."""
        return self._now.setdefault(tenant, Tally(self._since_s))

    def turn(self, now_s: float, most_qps: float = math.inf) -> Tally:
        """The next one begins; returns the one that has ended. Where there are several tenants none has asked for more than `most_qps`."""
        ended = self._together(most_qps)
        self._since_s, self._now = now_s, {}
        self._past.append(replace(ended, parts=()))
        while self._past[0].since_s < now_s - MINUTE_S and len(self._past) > 1:
            self._past.popleft()
        return ended

    def minute(self) -> QueryCounts:
        """Counts of the last minute, by whole windows, and of the one that runs."""
        return counted([*self._past, self._together(math.inf)])

    def _together(self, most_qps: float) -> Tally:
        parts = tuple(self._now.values())
        if len(parts) > 1:
            parts = tuple(part.at_most(most_qps) for part in parts)
        counts = Counts()
        for part in parts:
            counts = counts.plus(part.counts)
        return Tally(
            self._since_s,
            np.sum([np.zeros(BINS), *(part.incoming for part in parts)], axis=0),
            sum(part.asked_qps for part in parts),
            sum(part.rejected_qps for part in parts),
            counts,
            sum(part.unknown for part in parts),
            parts,
        )
