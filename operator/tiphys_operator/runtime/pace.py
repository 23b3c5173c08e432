"""When what failed is tried again: a few times soon, then more and more seldom, and never in step with everybody else."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from tiphys_models.base.clock import Clock

_SOON_S = 1.0
_SOON_TRIES = 3
_SOON_REFILL_S = 10.0
_LONGEST_S = 60.0
_RETRY_AFTER_MAX_S = 300.0


@dataclass(slots=True)
class SoonAgain:
    """A few tries that all objects together may have soon: a single failure costs a second, a failing API server gets no storm."""

    clock: Clock
    _tries: float = _SOON_TRIES
    _at_s: float = field(default=-math.inf)

    def take(self) -> bool:
        """Whether there is one left."""
        now_s = self.clock.monotonic_s()
        self._tries = min(_SOON_TRIES, self._tries + (now_s - self._at_s) / _SOON_REFILL_S) if math.isfinite(self._at_s) else _SOON_TRIES
        self._at_s = now_s
        if self._tries < 1:
            return False
        self._tries -= 1
        return True


def again_in_s(failures: int, interval_s: float, retry_after_s: float | None, soon: SoonAgain, rng: random.Random) -> float:
    """How long to wait after so many failures in a row, the first of which may be repeated soon.

    Otherwise twice the interval, then twice that, up to the interval or a minute, whichever is longer: what fails asks more seldom than
    what works. A server's Retry-After is never undercut.
    """
    if retry_after_s is None and failures == 1 and soon.take():
        return _SOON_S * rng.uniform(0.75, 1.25)
    longest_s = max(interval_s, _LONGEST_S)
    pause_s = min(interval_s * 2.0 ** min(failures, 16), longest_s) * rng.uniform(0.75, 1.25)
    if retry_after_s is None or not math.isfinite(retry_after_s):
        return pause_s
    return max(pause_s, min(max(retry_after_s, 0.0), _RETRY_AFTER_MAX_S) * rng.uniform(1.0, 1.25))
