"""How long the pods of a function take to start."""

from __future__ import annotations

import math

from tiphys_models.base.facts import PodFacts

_WEIGHT = 0.2
_STEP = 0.1  # kept scores depend on it: publish only changes of 10 % and more
_REMEMBERED = 10_000
_LONGEST_S = 3_600.0
"""Anyone who may write a pod's status may claim a start in the year 1: longer than an hour is taken for an hour."""


class StartTimes:
    """Moving means of scheduled-to-ready, each pod counted once. Of too many functions the one that started nothing longest goes."""

    def __init__(self, most_functions: int = _REMEMBERED) -> None:
        self._most_functions = most_functions
        self._mean_s: dict[str, float] = {}
        self._published_s: dict[str, float] = {}
        self._seen: dict[str, None] = {}
        self.evicted = 0
        """Functions that were let go because there were too many."""

    def __len__(self) -> int:
        return len(self._mean_s)

    def of(self, function: str) -> float:
        """Published mean start time of a function, in seconds; NaN before the first start."""
        return self._published_s.get(function, math.nan)

    def learn(self, facts: PodFacts) -> None:
        """A pod as the API server shows it; only the first time that it is ready counts."""
        if facts.ready_s is None or facts.scheduled_s is None or not facts.function or facts.uid in self._seen:
            return
        self._seen[facts.uid] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        took_s = min(max(facts.ready_s - facts.scheduled_s, 0.0), _LONGEST_S)
        before_s = self._mean_s.pop(facts.function, None)
        mean_s = took_s if before_s is None else before_s + _WEIGHT * (took_s - before_s)
        self._mean_s[facts.function] = mean_s
        published_s = self.of(facts.function)
        if not abs(mean_s - published_s) <= _STEP * max(published_s, 0.1):
            self._published_s[facts.function] = mean_s
        if len(self._mean_s) > self._most_functions:
            oldest = next(iter(self._mean_s))
            del self._mean_s[oldest]
            self._published_s.pop(oldest, None)
            self.evicted += 1
