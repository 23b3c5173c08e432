"""What has come and how it ended, window by window: what agents look at, and what the last minute was like."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_extender.streams.tokens import Counts
from tiphys_models.api.stream_summary import QueryCounts
from tiphys_models.binding.agent import BINS
from tiphys_models.features.arrays import FloatArray

MINUTE_S = 60.0


@dataclass(slots=True)
class Tally:
    """One window."""

    since_s: float
    incoming: FloatArray = field(default_factory=lambda: np.zeros(BINS))
    """Queries a second that were asked for, bound or not, by bin of delay and rate."""
    asked_qps: float = 0.0
    rejected_qps: float = 0.0
    """Of it for streams that were not bound, whatever the reason."""
    counts: Counts = field(default_factory=Counts)
    unknown: float = 0.0
    """Queries of which no client said what became."""

    def ask(self, place: int, rate_qps: float, *, bound: bool) -> None:
        """A stream came."""
        self.incoming[place] += rate_qps
        self.asked_qps += rate_qps
        if not bound:
            self.rejected_qps += rate_qps

    def report(self, counts: Counts) -> None:
        """Clients said what became of queries."""
        self.counts = Counts(*(a + b for a, b in zip(self.counts, counts, strict=True)))


@dataclass(frozen=True, slots=True)
class Shares:
    """They add up to one. Rejected is a share of the queries a second that were asked for (nobody knows how long a stream that was not
    bound would have lasted); the rest is split as clients reported."""

    success: float
    reject: float
    failure: float


def shares(tallies: Sequence[Tally]) -> Shares:
    """Of these windows together; all success where nothing was asked for."""
    asked, rejected, counts = _sums(tallies)
    reported = counts.total
    reject = rejected / asked if asked else 0.0
    failure = (counts.late + counts.refused) / reported if reported else 0.0
    return Shares((1 - reject) * (1 - failure), reject, (1 - reject) * failure)


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
    """The one that runs, and those of the last minute."""

    def __init__(self, now_s: float) -> None:
        self.now = Tally(now_s)
        self._past: deque[Tally] = deque()

    def turn(self, now_s: float) -> Tally:
        """The next one begins; returns the one that has ended."""
        ended, self.now = self.now, Tally(now_s)
        self._past.append(ended)
        while self._past[0].since_s < now_s - MINUTE_S and len(self._past) > 1:
            self._past.popleft()
        return ended

    def minute(self) -> QueryCounts:
        """Of the last minute, by whole windows, and of the one that runs."""
        return counted([*self._past, self.now])
