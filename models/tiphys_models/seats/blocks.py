"""What a canary by blocks of time has shown so far: sums of both groups, small enough for a status or a checkpoint.

Windows and intervals of one block resemble each other, so blocks are what is counted: the spread of block means, and not that of
windows, says how sure a difference is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

Result = Literal["TooEarly", "Better", "Worse", "NoDifferenceFound"]
LEAST_BLOCKS: Final = 4
"""Blocks that each group needs before anything is said."""
_OPEN_MAX = 4
"""Blocks whose outcomes may still come in; what comes later counts in the mean, and not in the spread."""
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class MeasuredBlock:
    """What was measured of some units of a block: windows, or pods."""

    units: int
    total: float
    """Sum of the outcome that is compared."""
    cost: float
    late: float


@dataclass(frozen=True, slots=True)
class OpenBlock:
    """A block whose outcomes still come in."""

    number: int
    units: int
    total: float


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums of one group's outcomes in a canary."""

    units: int = 0
    total: float = 0.0
    cost: float = 0.0
    late: float = 0.0
    blocks: int = 0
    """Blocks that are closed."""
    means: float = 0.0
    """Sum of their means."""
    squares: float = 0.0
    """Sum of the squared deviations of their means from the mean of means."""
    open: tuple[OpenBlock, ...] = ()
    """Newest blocks, oldest first."""

    def adding(self, block: int, found: MeasuredBlock) -> GroupSums:
        """The sums with what was measured in a block."""
        sums = replace(
            self,
            units=self.units + found.units,
            total=self.total + found.total,
            cost=self.cost + found.cost,
            late=self.late + found.late,
        )
        if any(o.number == block for o in self.open):
            grown = (_grown(o, found) if o.number == block else o for o in self.open)
            return replace(sums, open=tuple(grown))
        if len(self.open) >= _OPEN_MAX and block < self.open[0].number:
            return sums
        ordered = sorted((*self.open, OpenBlock(block, found.units, found.total)), key=lambda o: o.number)
        return replace(sums, open=tuple(ordered[-_OPEN_MAX:]))._closing(ordered[:-_OPEN_MAX])

    def all_closed(self) -> GroupSums:
        """The sums with all open blocks closed, as if no more came of them."""
        return replace(self, open=())._closing(list(self.open))

    @property
    def mean(self) -> float | None:
        """The outcome of a unit; None before the first."""
        return self.total / self.units if self.units else None

    @property
    def standard_error(self) -> float | None:
        """How far the mean of blocks may be off; None below two blocks."""
        sums = self.all_closed()
        if sums.blocks < 2:
            return None
        return math.sqrt(sums.squares / (sums.blocks - 1) / sums.blocks)

    def _closing(self, blocks: list[OpenBlock]) -> GroupSums:
        count, means, squares = self.blocks, self.means, self.squares
        for mean in (o.total / o.units for o in blocks if o.units):
            # by deviations: with sums of squares, equal blocks would seem to differ by what floats lose
            squares += (mean - means / count) ** 2 * count / (count + 1) if count else 0.0
            count, means = count + 1, means + mean
        return replace(self, blocks=count, means=means, squares=squares)


@dataclass(frozen=True, slots=True)
class Difference:
    """Treated minus control, as the means of their blocks."""

    result: Result
    difference: float | None = None
    plus_minus: float | None = None
    """Half of the 95 % interval of the difference."""


def difference(treated: GroupSums, control: GroupSums, *, more_is_better: bool) -> Difference:
    """What both groups together say."""
    a, b = treated.all_closed(), control.all_closed()
    if not a.blocks or not b.blocks:
        return Difference("TooEarly")
    found = a.means / a.blocks - b.means / b.blocks
    error_a, error_b = a.standard_error, b.standard_error
    if min(a.blocks, b.blocks) < LEAST_BLOCKS or error_a is None or error_b is None:
        return Difference("TooEarly", found)
    # the smaller group's degrees of freedom: wider than need be, never narrower
    width = _t_95(min(a.blocks, b.blocks) - 1) * math.hypot(error_a, error_b)
    if abs(found) <= width:
        return Difference("NoDifferenceFound", found, width)
    return Difference("Better" if (found > 0) == more_is_better else "Worse", found, width)


def _grown(block: OpenBlock, found: MeasuredBlock) -> OpenBlock:
    return replace(block, units=block.units + found.units, total=block.total + found.total)


def _t_95(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond the table within half a percent of it, and above."""
    return _T_95[freedom - 1] if freedom <= len(_T_95) else 1.96 + 2.7 / freedom
