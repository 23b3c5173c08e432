"""Cost against attainment: an agent with several settings is a curve, and two agents are compared where they attain the same."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray


def cost_at(attained: FloatArray, cost: FloatArray, wanted: float) -> float:
    """Cost at this attainment, linear between the neighbouring settings that no other one dominates.

    Nothing is extrapolated: below the curve its cheapest point counts, above it inf.
    """
    order = np.lexsort((-attained, cost))
    best_attained: list[float] = []
    best_cost: list[float] = []
    for a, c in zip(attained[order].tolist(), cost[order].tolist(), strict=True):
        if not best_attained or a > best_attained[-1]:
            best_attained.append(a)
            best_cost.append(c)
    if wanted > best_attained[-1] + 1e-9:
        return float("inf")
    return float(np.interp(wanted, best_attained, best_cost))
