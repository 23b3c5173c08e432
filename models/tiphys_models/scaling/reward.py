"""What a window was worth: one reward for the simulator that trains and for the cluster that serves."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray

POD_PRICE = 0.05
"""CPU-hours that a pod-hour costs besides its limit: relay, runtime, memory. Without it replicas would be free."""
GRADED = 0.4
"""Part of a violation's price that goes by the share of late requests: an agent that has given up still feels each one."""


def bill(replicas: IntArray | int, cpu_m: FloatArray | int) -> FloatArray:
    """Cores that pods of a size cost."""
    return np.asarray(replicas * (np.asarray(cpu_m, np.float64) / 1000 + POD_PRICE))


def pain(late: FloatArray | float, tolerated: float = 0.1) -> FloatArray:
    """0 to 1, from the share of late requests and the share that the objective tolerates."""
    return np.asarray((1 - GRADED) * (np.asarray(late) > tolerated) + GRADED * np.asarray(late))


def reward(cost: FloatArray | float, suffered: FloatArray | float, price: FloatArray | float) -> FloatArray:
    """`cost` in what the service needs in a mean window; the unit is the mean of that and of a violation's price."""
    return np.asarray(-(np.asarray(cost) + price * np.asarray(suffered)) / ((1 + np.asarray(price)) / 2))


def late_with(capacity_m: float, late: float, had_m: float, needed_m: float) -> float:
    """The share of late requests with another capacity, from what was measured with the one there was.

    The shortfall of a capacity is the part of `needed_m` (the demand with the rule's headroom) that it lacks. Less shortfall makes requests
    late in proportion; more of it makes that many more late. Equal capacities were equally late, whatever the reason.
    """
    if capacity_m == had_m or needed_m <= 0:
        return late
    missed, lacking = (max(0.0, 1 - m / needed_m) for m in (had_m, capacity_m))
    if lacking > missed:
        return min(1.0, late + lacking - missed)
    return late * lacking / missed if missed else late
