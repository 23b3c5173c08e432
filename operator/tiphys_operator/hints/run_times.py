"""How long pods of an application ran that ended by themselves. Exact, bounded, and learned anew by every process."""

from __future__ import annotations

import math
from collections import OrderedDict, deque

ENOUGH = 3
"""Of fewer ended pods nothing is said."""
_KEPT = 64
"""Ended pods of an application that count: the last ones, so that a release that came since is learned."""
_SHARE = 0.9


class RunTimes:
    """The last run times of every application, of a bounded number of applications."""

    def __init__(self, most_applications: int = 2_000) -> None:
        self._most = most_applications
        self._of: OrderedDict[str, deque[float]] = OrderedDict()  # least recently ended first

    def __len__(self) -> int:
        return len(self._of)

    def ended(self, application: str, run_s: float) -> None:
        """A pod of the application ran so long and ended. One that no clock could have measured says nothing."""
        if not application or not 0.0 < run_s < math.inf:
            return
        self._of.setdefault(application, deque(maxlen=_KEPT)).append(run_s)
        self._of.move_to_end(application)
        if len(self._of) > self._most:
            self._of.popitem(last=False)

    def of(self, application: str) -> float | None:
        """The run time that at least nine in ten of them did not exceed; None while too few have ended."""
        known = self._of.get(application, ())
        if len(known) < ENOUGH:
            return None
        return sorted(known)[min(int(_SHARE * len(known)), len(known) - 1)]
