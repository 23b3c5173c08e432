"""What has been learned since training: corrections of a surrogate, one small step a scored decision, for the executed candidate only.

Linear in the surrogate's last hidden layer; starts at nothing. Steps shrink with the decisions a candidate has had, so that a
correction is a mean over hundreds of decisions and not an echo of the last one, and stop shrinking so that it can follow a change.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.selectors.surrogate import COMPONENTS, UNITS

PRIOR = 100.0
"""Decisions that "nothing has changed" is worth."""
MEMORY = 1000.0
"""Decisions after which steps shrink no further."""


class Drift:
    """Corrections per candidate and component, in `UNITS` a task."""

    def __init__(self, candidates: int, hidden: int) -> None:
        self.weights: FloatArray = np.zeros((candidates, COMPONENTS, hidden))
        self.counts: FloatArray = np.zeros(candidates)

    def correction(self, hidden: FloatArray, tasks: float) -> FloatArray:
        """Candidates x components, to be added to predictions."""
        return np.asarray((self.weights @ hidden) * UNITS * tasks)

    def error(self, candidate: int, hidden: FloatArray, wanted: FloatArray) -> FloatArray:
        """Per component: the correction minus what it should have been."""
        return np.asarray(self.weights[candidate] @ hidden - wanted)

    def step(self, candidate: int, hidden: FloatArray, missed: FloatArray, tasks: float) -> None:
        """`missed`: measured minus predicted (without correction). One gradient step on half the squared error, normalised by the input."""
        wanted = np.clip(missed / UNITS / tasks, -10.0, 10.0)  # one absurd measurement must not undo a day
        gradient = np.outer(self.error(candidate, hidden, wanted), hidden)
        rate = 1.0 / (PRIOR + min(float(self.counts[candidate]), MEMORY))
        self.weights[candidate] -= rate * gradient / float(hidden @ hidden)
        self.counts[candidate] += 1
