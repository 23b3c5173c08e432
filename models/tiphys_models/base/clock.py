"""Time as an argument: decisions take a clock, only the edges know the wall."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Both kinds of time a decision may need."""

    def now_s(self) -> float:
        """Seconds since the epoch: for readings, which carry the time they were taken."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never run backwards: for deadlines and durations."""
        ...


class SystemClock:
    """The real clocks of this machine."""

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic_s(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()


class SteadyClock:
    """The wall clock as it stood when this was made, carried on by the clock that nobody sets.

    For times that are only compared with each other: a reservation's end, the age of a call. A wall clock that was wrong then and is mended
    later stays wrong here until the process starts again.
    """

    def __init__(self, clock: Clock) -> None:
        self.monotonic_s = clock.monotonic_s
        self._ahead_s = clock.now_s() - clock.monotonic_s()

    def now_s(self) -> float:
        """Seconds since the epoch, by the wall clock of then."""
        return self.monotonic_s() + self._ahead_s


class ManualClock:
    """A clock that tests and simulators move by hand."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._set_forward_s = 0.0

    def now_s(self) -> float:
        """Seconds since the epoch."""
        return self._now_s

    def monotonic_s(self) -> float:
        """The same instant, as long as nobody sets the wall clock."""
        return self._now_s - self._set_forward_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now_s += seconds

    def set_forward(self, seconds: float) -> None:
        """Somebody sets the wall clock, back if negative; time itself goes on as before."""
        self._now_s += seconds
        self._set_forward_s += seconds
