"""How long pods of an application live, learned from pods that started and ended, and what a pod adds to the life of a node.

Every application has a histogram of lifetimes: of the pods that reached a bin, how many ended in it. A pod that still runs is at risk in
every bin it has passed, so that long lives count before they end. What few pods say of an application is filled up with what all
pods say. Functions are of arrays, in and out, because the simulator compiles them. Row 0 of every array is the pool of all applications.

A node has to stay until the last of its pods has ended. So it is not enough to know how long each of them is expected to live: the
chance that a node is empty at a later time is the product of the chances that each of its pods has ended by then, and a pod prolongs the
node's life by the time that it is still there while all others are gone. Where lifetimes are vague, that is much the same on all nodes,
and how full they are decides.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray

FIRST_EDGE_S = 30.0
BINS = 27
"""The first one ends at 30 s, then two an octave up to 68 h."""
EDGES_S: FloatArray = np.concatenate((np.zeros(1), FIRST_EDGE_S * 2.0 ** (np.arange(BINS) / 2)))
WIDTHS_S: FloatArray = np.diff(EDGES_S)
HALF_LIFE_S = 24 * 3600.0
"""Time after which an observation counts half: applications change."""
PRIOR = 4.0
"""Pods at risk that the pool counts for in each bin of an application."""
SCALE_FREE = 1.0 - 2.0**-0.5
"""Hazard of a bin before anything was seen: of pods that reach an age, half reach the double of it."""

HORIZON_S = 48 * 3600.0
"""Nobody plans further ahead."""
POINTS = 13
_AHEAD_EDGES_S: FloatArray = np.concatenate((np.zeros(1), 60.0 * 2.0 ** np.arange(POINTS - 1.0), np.full(1, HORIZON_S)))
AHEAD_S: FloatArray = (_AHEAD_EDGES_S[1:] + _AHEAD_EDGES_S[:-1]) / 2
"""Times ahead at which it is asked who is still there, an octave apart; `SPANS_S` is what each of them stands for."""
SPANS_S: FloatArray = np.diff(_AHEAD_EDGES_S)

LATE, EARLY = 2.0, 0.3
"""What it costs to prolong a node's life by the whole life of the pod, and to leave the whole of the node's life behind; a full node
brings 1."""
PROTECTED_LATE, PROTECTED_EARLY, USED = 0.8, 0.2, 0.25
"""The same two where an autoscaler empties nodes and only pods that it must not evict keep one; what it is worth that one is in use."""
CROWD, BUSY = 1.0, 0.9
"""What it costs to want more than this share of a node's cores, for each node's worth of cores."""
_LEAST = 1e-12


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
    filled: FloatArray = (ends + PRIOR * pool) / (at_risk + PRIOR)
    return filled


def survivals(hazard: FloatArray) -> FloatArray:
    """Share of pods that reach each edge, [applications, bins + 1]."""
    found = np.ones((hazard.shape[0], BINS + 1))
    for b in range(BINS):
        found[:, b + 1] = found[:, b] * (1.0 - hazard[:, b])
    return found


def survivals_at(survival: FloatArray, application: IntArray, age_s: FloatArray) -> FloatArray:
    """Share of pods of each application that reach such an age; beyond the last edge nobody ends."""
    bins = np.minimum(bins_of(age_s), BINS - 1)
    passed = np.minimum((age_s - EDGES_S[bins]) / WIDTHS_S[bins], 1.0)
    edge = application * (BINS + 1) + bins
    before, after = survival.ravel()[edge], survival.ravel()[edge + 1]
    return before + (after - before) * passed  # a straight line within a bin


def chances_gone(survival: FloatArray, application: IntArray, age_s: FloatArray) -> FloatArray:
    """Chance that each pod, of such an age now, has ended by each time ahead, [pods, times]."""
    pods = len(age_s)
    here = np.maximum(survivals_at(survival, application, age_s), _LEAST)
    later_s = (age_s.reshape(pods, 1) + AHEAD_S).ravel()
    there = survivals_at(survival, np.repeat(application, POINTS), later_s)
    gone: FloatArray = 1.0 - np.minimum(there.reshape(pods, POINTS) / here.reshape(pods, 1), 1.0)
    return gone


def chance_empty(gone: FloatArray) -> FloatArray:
    """Chance that a node is empty at each time ahead, if nothing more comes: all of its pods have ended."""
    found = np.ones(POINTS)
    for i in range(len(gone)):
        found *= gone[i]
    return found


def prolonged(empty: FloatArray, gone: FloatArray) -> FloatArray:
    """Share of a pod's life by which it is expected to prolong the life of each node: 1 on an empty node, 0 where others stay longer."""
    stays = (1.0 - gone) * SPANS_S
    share: FloatArray = (empty * stays).sum(axis=1) / max(stays.sum(), _LEAST)
    return share


def left_behind(empty: FloatArray, gone: FloatArray) -> FloatArray:
    """Share of each node's life that is expected to come after the end of the pod."""
    lives = (1.0 - empty) * SPANS_S
    share: FloatArray = (lives * gone).sum(axis=1) / np.maximum(lives.sum(axis=1), _LEAST)
    return share


def crowding(load: FloatArray, cpu: FloatArray, cpu_wanted: float) -> FloatArray:
    """Share of each node's cores that would be missing, if its load average is what its pods could use and the pod uses what it asks for.

    A load that nobody measured is none.
    """
    known = np.where(np.isnan(load), 0.0, load)
    return np.maximum((known + cpu_wanted) / np.maximum(cpu, _LEAST) - BUSY, 0.0)


def score(allocation: FloatArray, late: FloatArray, early: FloatArray, crowd: FloatArray) -> FloatArray:
    """Allocation, less what the pod prolongs each node's life by, less what of it the pod leaves behind, less what it crowds."""
    found: FloatArray = allocation - LATE * late - EARLY * early - CROWD * crowd
    return found


def consolidated_score(allocation: FloatArray, late: FloatArray, early: FloatArray, inflight: FloatArray, protected: bool) -> FloatArray:
    """Allocation, and that the node is in use; less what a pod that nobody may evict prolongs and leaves behind of the node's stay."""
    found: FloatArray = allocation + USED * (inflight > 0)
    return found - PROTECTED_LATE * late - PROTECTED_EARLY * early if protected else found
