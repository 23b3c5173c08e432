"""Rule and learned decider side by side: how often they agree, and how the groups of a Canary end on average."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tiphys_models.seats.seat import Answered, Group


@dataclass(slots=True)
class GroupTally:
    """Answers of one group, and the running mean of how they ended."""

    answers: int = 0
    fallbacks: int = 0
    """Answers that the rule had to give because the learned decider could not or may not."""
    ended: int = 0
    """Answers whose end is known."""
    mean: float = 0.0
    _squares: float = 0.0
    """Sum of squared deviations from the mean."""

    def end(self, value: float) -> None:
        """One answer has ended with this value; NaN and infinity say nothing."""
        if not math.isfinite(value):
            return
        self.ended += 1
        off = value - self.mean
        self.mean += off / self.ended
        self._squares += off * (value - self.mean)

    @property
    def standard_error(self) -> float | None:
        """How far the mean may be off; None below two ends."""
        return math.sqrt(self._squares / (self.ended - 1) / self.ended) if self.ended > 1 else None


@dataclass(slots=True)
class Comparison:
    """A count of what a seat's answers have shown since `since_s`."""

    since_s: float
    same: int = 0
    """Answers for which the other decider would have said the same."""
    other: int = 0
    """Answers for which it would have said something else."""
    groups: dict[Group, GroupTally] = field(default_factory=dict)

    def answered(self, answered: Answered[Any], *, same: bool | None = None) -> None:
        """One more answer; `same` says whether both deciders agree where equality of their answers does not."""
        tally = self.groups.setdefault(answered.group, GroupTally())
        tally.answers += 1
        tally.fallbacks += answered.outcome == "fallback"
        if answered.would is None:
            return
        if answered.answer == answered.would if same is None else same:
            self.same += 1
        else:
            self.other += 1

    def ended(self, group: Group, value: float) -> None:
        """How an answer of this group ended."""
        self.groups.setdefault(group, GroupTally()).end(value)

    @property
    def agreement(self) -> float | None:
        """Share of the compared answers in which both said the same; None before the first."""
        compared = self.same + self.other
        return self.same / compared if compared else None
