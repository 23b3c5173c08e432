"""Rank and select: from scores to the 0..10 of the extender contract.

The order is never inverted and the best alone holds 10; the others share 0..9 by rank. Scores within the policy's epsilon are
equal, and equals are ordered by a hash of pod and node: an idle or uniform cluster has many equal nodes, and taking the first
of them would send a whole burst to one node. A node nobody can judge ranks in the middle, never last.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.base.hashing import stable_hash

MAX_SCORE = 10
NEUTRAL_SCORE = 5

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_TO_UNIT = np.uint64(11)


def tie_breakers(uid: str, name_hash: HashArray) -> FloatArray:
    """A number in [0, 1) for each node, different for every pod, equal in every process."""
    # any fixed order among equals would send a whole burst of pods to the first names (ADR 10)
    return mixed_ties(np.uint64(stable_hash(uid)), name_hash)


def mixed_ties(uid_hash: np.uint64, name_hash: HashArray) -> FloatArray:
    """Tie breakers computed from hashes; simulators compile this function."""
    mixed = name_hash ^ uid_hash
    mixed *= _MIX
    mixed ^= mixed >> _SHIFT
    mixed *= _MIX
    mixed >>= _TO_UNIT
    return mixed.astype(np.float64) * 2.0**-53


def sort_key(scores: FloatArray, ties: FloatArray, epsilon: float) -> FloatArray:
    """Smallest first: which epsilon-wide bucket below the best, then the tie-breaker. No score may be NaN."""
    below_best = (scores.max() - scores).astype(np.float64)
    # one double holds bucket and tie-breaker: beyond 2**31 buckets too few bits would be left for the latter
    width = max(epsilon, below_best.max() * 2.0**-31)
    if not width > 0:
        return ties
    key: FloatArray = np.floor(below_best / width)
    key += ties
    return key


def order(scores: FloatArray, ties: FloatArray, epsilon: float) -> IntArray:
    """Candidates from best to worst; NaN stands at the median of the known scores."""
    if not len(scores):
        return np.zeros(0, np.int64)
    best = scores.max()
    if best != best:
        known = scores[~np.isnan(scores)]
        scores = np.where(np.isnan(scores), np.median(known) if len(known) else 0.0, scores)
    return sort_key(scores, ties, epsilon).argsort()
