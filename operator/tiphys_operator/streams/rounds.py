"""What the probes of one site have shown: whether it answers, and how far it is. Pure; time is an argument."""

from __future__ import annotations

import statistics
from collections import deque

from tiphys_models.api.inference_site import MeasuredDelay
from tiphys_models.api.stream_reasons import ProbeRefusal
from tiphys_models.base.quantity import rfc3339

KEPT = 30
"""Round trips that mean and deviation are of: a minute at the default interval."""
LEAST = 5
"""Fewer say nothing about a deviation."""
MISSED_MAX = 2
"""So many in a row and the site is down: one alone may be a lost packet."""


class Rounds:
    """The latest probes of a site from one place."""

    def __init__(self) -> None:
        self._round_trips_ms: deque[float] = deque(maxlen=KEPT)
        self._missed = 0
        self._answered_s = 0.0
        self.why_missed = ""
        self.refused: ProbeRefusal | None = None
        """The rule that keeps probes from being sent."""
        self.reachable: bool | None = None
        """Whether the site answers; None: it is not known yet."""

    def answered(self, round_trip_ms: float, now_s: float) -> bool:
        """A probe came back; whether that is news."""
        self._round_trips_ms.append(round_trip_ms)
        self._missed, self._answered_s, self.refused = 0, now_s, None
        return self._found(True)

    def missed(self, why: str) -> bool:
        """A probe did not come back in time; whether that is news."""
        self._missed, self.refused = self._missed + 1, None
        self.why_missed = why
        return self._missed >= MISSED_MAX and self._found(False)

    def refuse(self, rule: ProbeRefusal) -> bool:
        """No probe is sent; whether that is news. What was measured before is of an address that nobody asks any more."""
        news = self.refused is not rule
        self._round_trips_ms.clear()
        self._missed, self.refused, self.reachable = 0, rule, None
        return news

    def delay(self, origin: str) -> MeasuredDelay | None:
        """One way: half a round trip. None while there are too few."""
        trips = self._round_trips_ms
        if len(trips) < LEAST:
            return None
        return MeasuredDelay(
            origin=origin,
            mean_ms=round(statistics.fmean(trips) / 2, 3),
            sigma_ms=round(statistics.stdev(trips) / 2, 3),
            samples=len(trips),
            measured_at=rfc3339(self._answered_s),
        )

    def _found(self, reachable: bool) -> bool:
        news = self.reachable is not reachable
        self.reachable = reachable
        return news
