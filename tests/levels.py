"""The whole numbers 0..10 that candidates get by their rank, said once more and as plainly as possible: what the wire writes is held to it."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.placement.rank import MAX_SCORE


def levels(best_first: IntArray) -> IntArray:
    """The number of each candidate, in the candidates' own order."""
    count = len(best_first)
    by_rank = np.empty(count, np.int64)
    if count:
        by_rank[0] = MAX_SCORE
        by_rank[1:] = MAX_SCORE - 1 - (np.arange(count - 1) * MAX_SCORE) // max(count - 1, 1)
    result = np.empty(count, np.int64)
    result[best_first] = by_rank
    return result
