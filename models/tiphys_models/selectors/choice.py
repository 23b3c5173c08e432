"""From predicted costs to a choice: only a clear advantage makes a selector leave its fallback, and only so often."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tiphys_models.selectors.protocol import Choice

_HOUR_S = 3600.0


def choose_with_margin(predicted: Mapping[str, float], fallback: str, margin: Mapping[str, float]) -> Choice:
    """The lowest prediction among those that beat the fallback's by more than their `margin` (in J); else the fallback.

    Equals: the first in order. Without a prediction for the fallback the lowest is taken.
    """
    best = min(predicted, key=predicted.__getitem__)
    if fallback not in predicted:
        return Choice(best, "BestPredicted", predicted)
    clear = [name for name in predicted if predicted[fallback] - predicted[name] > margin.get(name, 0.0)]
    if clear:
        return Choice(min(clear, key=predicted.__getitem__), "BestPredicted", predicted)
    return Choice(fallback, "WithinMargin" if best != fallback else "BestPredicted", predicted)


class SwitchLimit:
    """At most so many changes of the chosen candidate an hour; None does not limit."""

    def __init__(self, per_hour: int | None) -> None:
        self._per_hour = per_hour
        self._at_s: deque[float] = deque()
        self._last: str | None = None
        self._before: tuple[str | None, float, bool] = (None, 0.0, False)
        """Who decided before the newest choice, when that was made, and whether it counted as a change."""

    def hold(self, choice: Choice, time_s: float) -> Choice:
        """The choice itself, or the last candidate again where the limit is reached."""
        while self._at_s and self._at_s[0] <= time_s - _HOUR_S:
            self._at_s.popleft()
        self._before = (self._last, time_s, False)
        if self._last is None or choice.candidate == self._last:
            self._last = choice.candidate
            return choice
        if self._per_hour is not None and len(self._at_s) >= self._per_hour:
            return Choice(self._last, "SwitchLimit", choice.predicted, choice.thinking_s)
        self._before = (self._last, time_s, True)
        self._at_s.append(time_s)
        self._last = choice.candidate
        return choice

    def overruled(self, candidate: str) -> None:
        """This candidate decides instead of the newest choice; mostly the one before, and then nothing has changed."""
        former, time_s, changed = self._before
        if changed:
            self._at_s.pop()
        if another := former is not None and candidate != former:
            self._at_s.append(time_s)
        self._last, self._before = candidate, (former, time_s, another)
