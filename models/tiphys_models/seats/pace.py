"""Time that deciders of other packages may take where somebody waits for the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tiphys_models.base.errors import TiphysError

REST_S = 60.0
OVERRUNS = 3

T = TypeVar("T")


class TooSlow(TiphysError):
    """The decider has lately taken more time than it has, and is not asked for a while."""


class Pace:
    """A decider that overruns its time several times in a row is set aside for a minute, so that it delays nobody else's answers.

    What it answered in the meantime counts: nothing can be taken back from a thread that is computing.
    """

    def __init__(self, budget_s: float, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._budget_s, self._now_s = budget_s, now_s
        self._overruns, self._rests_until_s = 0, float("-inf")

    def run(self, ask: Callable[[], T]) -> T:
        """The answer; TooSlow while the decider is set aside."""
        began_s = self._now_s()
        if began_s < self._rests_until_s:
            raise TooSlow(f"set aside: it took more than {1000 * self._budget_s:g} ms {OVERRUNS} times in a row")
        try:
            return ask()
        finally:  # one that raises has taken its time, too
            ended_s = self._now_s()
            self._overruns = self._overruns + 1 if ended_s - began_s > self._budget_s else 0
            if self._overruns >= OVERRUNS:
                self._overruns, self._rests_until_s = 0, ended_s + REST_S
