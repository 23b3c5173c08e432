"""A simpler decider, for comparison: each pod by its expected rest alone, each node by the largest of them.

Node's emptying E = largest expected rest on it; score = allocation - u max(L - E, 0)/L - v max(E - L, 0)/E for a pod of expected life L,
where u and v shrink to nothing as the spread of the application's lifetimes grows.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.lifetimes import BINS, EDGES_S, FIRST_EDGE_S, HORIZON_S, WIDTHS_S, bins_of

_LOG_FIRST = float(np.log(FIRST_EDGE_S))
_LOG_STEP = float(np.log(2.0) / 2)
_QUARTILES = 1.349
"""Distance of the quartiles of a normal distribution, in standard deviations."""
_bins_of = compiled(bins_of)


@compiled
def rests_at_edges(hazard: FloatArray) -> FloatArray:
    """Expected rest of pods that have just reached each edge, [applications, bins + 1]: survival summed over the bins behind it."""
    rest = np.full((hazard.shape[0], BINS + 1), HORIZON_S)  # who reaches the last edge stays
    for b in range(BINS - 1, -1, -1):
        rest[:, b] = np.minimum(WIDTHS_S[b] * (1.0 - hazard[:, b] / 2) + (1.0 - hazard[:, b]) * rest[:, b + 1], HORIZON_S)
    return rest


@compiled
def _log_quantile(survival: FloatArray, left: float) -> FloatArray:
    """Logarithm of the age that this share of pods outlives."""
    found = np.full(survival.shape[0], _LOG_FIRST + _LOG_STEP * (BINS - 1))
    for b in range(BINS - 1, -1, -1):  # the first bin that leaves fewer is the last one to write
        lost = np.maximum(survival[:, b] - survival[:, b + 1], 1e-12)
        inside = _LOG_FIRST + _LOG_STEP * (b - 1 + np.minimum(np.maximum((survival[:, b] - left) / lost, 0.0), 1.0))
        found = np.where(survival[:, b + 1] <= left, inside, found)
    return found


@compiled
def spreads(survival: FloatArray) -> FloatArray:
    """Standard deviation of the logarithm of each application's lifetimes, from its quartiles.

    Of a coefficient of variation of .2, .6 and 1.5 it is .2, .55 and 1.1. An application that little is known of has the pool's.
    """
    return (_log_quantile(survival, 0.25) - _log_quantile(survival, 0.75)) / _QUARTILES


@compiled
def expected_rests(hazard: FloatArray, rest: FloatArray, application: IntArray, age_s: FloatArray) -> FloatArray:
    """Seconds that each pod of such an application and age will still run, by expectation."""
    reached = _bins_of(age_s)
    bins = np.minimum(reached, BINS - 1)
    passed = np.minimum((age_s - EDGES_S[bins]) / WIDTHS_S[bins], 1.0)
    ends = hazard.ravel()[application * BINS + bins]
    here = np.maximum(1.0 - ends * passed, 1e-9)
    behind = 1.0 - ends
    left = WIDTHS_S[bins] * (1.0 - passed) * (here + behind) / 2 + behind * rest.ravel()[application * (BINS + 1) + bins + 1]
    return np.where(reached < BINS, np.minimum(left / here, HORIZON_S), HORIZON_S)


@compiled
def point_score(allocation: FloatArray, emptying_s: FloatArray, rest_s: float, late: float, early: float) -> FloatArray:
    """Allocation, less what the pod prolongs the node's life by, less what of it the pod leaves behind.

    `emptying_s`: the largest rest of a pod on each node, 0 where there is none.
    """
    prolonged = np.maximum(rest_s - emptying_s, 0.0) / max(rest_s, 1.0)
    left_behind = np.maximum(emptying_s - rest_s, 0.0) / np.maximum(emptying_s, 1.0)
    found: FloatArray = allocation - late * prolonged - early * left_behind
    return found


@compiled
def trust(spread: float, sharpness: float) -> float:
    """How much an expected life says, 1 to 0: little of an application whose pods live now minutes, now days."""
    return float(np.exp(-sharpness * spread * spread))
