"""How long pods of an application live, learned from pods that were seen to start and end.

Every application has a histogram of lifetimes: of the pods that reached a bin, how many ended in it. A pod that still runs is at risk in
every bin it has passed, so that long lives count before they end. What few pods say of an application is filled up with what all
pods say. Functions are of arrays, in and out, because the simulator compiles them.

Row 0 of every array is the pool of all applications.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray

FIRST_EDGE_S = 30.0
BINS = 27
"""The first one ends at 30 s, then two an octave up to 68 h."""
EDGES_S: FloatArray = np.concatenate((np.zeros(1), FIRST_EDGE_S * 2.0 ** (np.arange(BINS) / 2)))
WIDTHS_S: FloatArray = np.diff(EDGES_S)
HORIZON_S = 48 * 3600.0
"""Nobody plans further ahead: an expected rest is never longer."""
HALF_LIFE_S = 24 * 3600.0
"""Time after which an observation counts half: applications change."""
PRIOR = 4.0
"""Pods at risk that the pool counts for in each bin of an application."""
SCALE_FREE = 1.0 - 2.0**-0.5
"""Hazard of a bin before anything was seen: of pods that reach an age, half reach the double of it."""
_LOG_FIRST = float(np.log(FIRST_EDGE_S))
_LOG_STEP = float(np.log(2.0) / 2)
_QUARTILES = 1.349
"""Distance of the quartiles of a normal distribution, in standard deviations."""

LATE, EARLY, SHARPNESS = 2.2, 0.3, 2.6
"""Weights of `score` at no spread at all, and how fast they shrink as the spread grows. Node's allocation has weight 1."""


def bins_of(age_s: FloatArray) -> IntArray:
    """The bin that each age lies in; `BINS` beyond the last."""
    octaves = np.log2(np.maximum(age_s, FIRST_EDGE_S) / FIRST_EDGE_S)
    bins = np.minimum(np.floor(2 * octaves), BINS - 1.0).astype(np.int64) + 1
    return np.where(age_s < FIRST_EDGE_S, 0, bins)


def kept_share(elapsed_s: float) -> float:
    """What an observation still counts after this time."""
    return float(2.0 ** (-elapsed_s / HALF_LIFE_S))


def hazards(ends: FloatArray, at_risk: FloatArray) -> FloatArray:
    """Chance to end in a bin of those that reach it, [applications, bins]."""
    pool = (ends[0] + SCALE_FREE) / (at_risk[0] + 1.0)
    return (ends + PRIOR * pool) / (at_risk + PRIOR)


def rests_at_edges(hazard: FloatArray) -> FloatArray:
    """Expected rest of pods that have just reached each edge, [applications, bins + 1]: survival summed over the bins behind it."""
    rest = np.full((hazard.shape[0], BINS + 1), HORIZON_S)  # who reaches the last edge stays
    for b in range(BINS - 1, -1, -1):
        rest[:, b] = np.minimum(WIDTHS_S[b] * (1.0 - hazard[:, b] / 2) + (1.0 - hazard[:, b]) * rest[:, b + 1], HORIZON_S)
    return rest


def spreads(hazard: FloatArray) -> FloatArray:
    """Standard deviation of the logarithm of the lifetime of each application, from its quartiles.

    Of a coefficient of variation of .2, .6 and 1.5 it is .2, .55 and 1.1. An application that little is known of has the pool's.
    """
    survival = np.ones((hazard.shape[0], BINS + 1))
    for b in range(BINS):
        survival[:, b + 1] = survival[:, b] * (1.0 - hazard[:, b])
    return (_log_quantile(survival, 0.25) - _log_quantile(survival, 0.75)) / _QUARTILES


def _log_quantile(survival: FloatArray, left: float) -> FloatArray:
    """Logarithm of the age that this share of pods outlives."""
    found = np.full(survival.shape[0], _LOG_FIRST + _LOG_STEP * (BINS - 1))
    for b in range(BINS - 1, -1, -1):  # the first bin that leaves fewer is the last one to write
        lost = np.maximum(survival[:, b] - survival[:, b + 1], 1e-12)
        inside = _LOG_FIRST + _LOG_STEP * (b - 1 + np.minimum(np.maximum((survival[:, b] - left) / lost, 0.0), 1.0))
        found = np.where(survival[:, b + 1] <= left, inside, found)
    return found


def expected_rests(hazard: FloatArray, rest: FloatArray, application: IntArray, age_s: FloatArray) -> FloatArray:
    """Seconds that each pod of such an application and age will still run, by expectation."""
    reached = bins_of(age_s)
    bins = np.minimum(reached, BINS - 1)
    passed = np.minimum((age_s - EDGES_S[bins]) / WIDTHS_S[bins], 1.0)
    ends = hazard.ravel()[application * BINS + bins]
    here = np.maximum(1.0 - ends * passed, 1e-9)  # survival falls in a straight line within a bin
    behind = 1.0 - ends
    left = WIDTHS_S[bins] * (1.0 - passed) * (here + behind) / 2 + behind * rest.ravel()[application * (BINS + 1) + bins + 1]
    return np.where(reached < BINS, np.minimum(left / here, HORIZON_S), HORIZON_S)


def most_allocated(
    cpu_requested: FloatArray, cpu: FloatArray, cpu_wanted: float, memory_requested: FloatArray, memory: FloatArray, memory_wanted: float
) -> FloatArray:
    """Share of a node that is requested once this pod is there, CPU and memory with equal weights, as in kube-scheduler's MostAllocated."""
    of_cpu = np.minimum((cpu_requested + cpu_wanted) / np.maximum(cpu, 1e-9), 1.0)
    of_memory = np.minimum((memory_requested + memory_wanted) / np.maximum(memory, 1e-9), 1.0)
    return (of_cpu + of_memory) / 2


def score(allocation: FloatArray, emptying_s: FloatArray, rest_s: float, late: float, early: float) -> FloatArray:
    """Allocation, less what the pod prolongs the node's life by, less what of the node's life it leaves behind.

    `emptying_s`: the largest expected rest of a pod on each node, 0 where there is none.
    """
    prolonged = np.maximum(rest_s - emptying_s, 0.0) / max(rest_s, 1.0)
    left_behind = np.maximum(emptying_s - rest_s, 0.0) / np.maximum(emptying_s, 1.0)
    return allocation - late * prolonged - early * left_behind


def trust(spread: float, sharpness: float) -> float:
    """How much an expected life says, 1 to 0: little of an application whose pods live now minutes, now days."""
    return float(np.exp(-sharpness * spread * spread))
