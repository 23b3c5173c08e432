"""Never worse than the fallback: advantages that were promised are checked against what decisions were found to cost."""

from __future__ import annotations

import math

import numpy as np

from tiphys_models.base.arrays import FloatArray

ENOUGH = 30.0
"""Decisions away from the fallback before it judges."""
PAUSE = 100
"""Decisions for which it then holds the fallback; after that the selector may try again with a clean slate."""
_DECAY = 0.995


class Guard:
    """Per task: promised advantage minus what was missed, over decisions away from the fallback; the fallback's own misses cancel out."""

    def __init__(self) -> None:
        self.sums: FloatArray = np.zeros(6)
        """Away: count, sum, squares; at home: count, sum; decisions left of a pause."""

    @property
    def holds(self) -> bool:
        """Whether the fallback must be taken."""
        return bool(self.sums[5] > 0)

    def decided(self) -> None:
        """One decision of a pause is over."""
        self.sums[5] = max(self.sums[5] - 1, 0.0)

    def scored(self, away: bool, promised: float, missed: float) -> None:
        """`missed`: measured minus predicted J a task of the executed candidate."""
        if away:
            gain = promised - missed
            self.sums[:3] = self.sums[:3] * _DECAY + (1.0, gain, gain**2)
        else:
            self.sums[3:5] = self.sums[3:5] * _DECAY + (1.0, missed)
        count, total, squares = self.sums[:3]
        if count < ENOUGH or self.holds:
            return
        home = float(self.sums[4] / max(self.sums[3], 1.0)) if self.sums[3] >= ENOUGH / 3 else 0.0
        mean = float(total / count)
        error = math.sqrt(max(float(squares / count) - mean**2, 0.0) / float(count))
        if mean + home + 2 * error < 0:
            self.sums[:] = 0.0
            self.sums[5] = PAUSE
