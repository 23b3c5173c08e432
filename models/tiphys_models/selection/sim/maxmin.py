"""How much better than every best column at once could anybody be? A max-min search over the weights of the clairvoyant oracle.

The answer is a lower bound of the optimum (a few steps), but an honest one: the oracle sees true works and what every plan leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.sim.choosers import CandidateOracle
from tiphys_models.selection.sim.episode import IntervalRecords, Planners, run
from tiphys_models.selection.sim.workloads import TaskWorkload

STEPS = 6
_RATE = 0.04
"""Per percent that a column lags behind the mean of all."""
_CLIP_PCT = 50.0
"""A column near zero (violations) can lag by hundreds of percent; it must not drown the others for good."""


@dataclass(frozen=True, slots=True)
class Point:
    """One oracle: its weights, and its gains in percent over the best row of each column (cost, energy, response, violations)."""

    weights: Weights
    gains_pct: tuple[float, float, float, float]

    @property
    def least(self) -> float:
        """The column that gains least."""
        return min(self.gains_pct)


def columns(records: IntervalRecords) -> FloatArray:
    """Cost, energy, response, violations."""
    return np.array([records.cost_usd, records.energy_kwh, records.response_s, records.sla_violation], np.float64)


def max_min(workload: TaskWorkload, planners: Planners, best: FloatArray, divisors: Divisors, steps: int = STEPS) -> Sequence[Point]:
    """Points tried, in order: weights move towards the columns that lag."""
    weights = np.full(4, 0.25)
    points = []
    for _ in range(steps):
        chosen = Weights(*weights.tolist())
        reached = columns(run(workload, planners, CandidateOracle(chosen, divisors)))
        gains = 100 * (1 - reached / np.maximum(best, 1e-9))
        points.append(Point(chosen, tuple(gains.tolist())))
        clipped = np.clip(gains, -_CLIP_PCT, _CLIP_PCT)
        weights = weights * np.exp(_RATE * (clipped.mean() - clipped))
        weights = weights / weights.sum()
    return points
