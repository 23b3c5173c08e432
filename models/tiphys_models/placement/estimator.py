"""An estimate, in seconds, of what a placement costs: the call's own start and run on that node, what it takes from calls that are there,
and what its coming evicts. The best node is the one that costs least.

Plain functions of arrays: the policies that serve call them with numpy, the simulator compiles them. No weight is tuned to a world.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray

START, RUN, HARM, EVICTION = range(4)
"""Columns of `placement_costs`."""
PART_NAMES = ("start", "run", "harm", "eviction")
_LEAST_S = 1e-6
HARM_SHARE = 0.5
"""The share that counts of what calls would lose if they stayed as long as believed: they are believed to stay rather too long."""


def crowding(cores: FloatArray, open_row: IntArray, open_parallelism: FloatArray) -> FloatArray:
    """float64[nodes]: how many times longer calls take on each node than alone; `open_row` is the node of each unfinished call."""
    return np.maximum(np.bincount(open_row, open_parallelism, len(cores)) / cores, 1.0)


def expected_rests(
    open_crowding: FloatArray, open_age_s: FloatArray, open_start_s: FloatArray, open_run_s: FloatArray, least_share: float
) -> FloatArray:
    """float64[open calls, 2]: the seconds that each unfinished call has still to go, and that in shares of its expected time.

    `open_start_s` and `open_run_s` are what start and run take on a node of its own, `open_crowding` is the crowding of its node. A call
    that is overdue has `least_share` of its time still to go.
    """
    whole_s = np.maximum(open_start_s + open_run_s * open_crowding, _LEAST_S)
    rest = np.empty((len(open_age_s), 2))
    rest[:, 0] = np.maximum(whole_s - open_age_s, least_share * whole_s)
    rest[:, 1] = rest[:, 0] / whole_s
    return rest


def placement_costs(
    cores: FloatArray,
    spare_bytes: FloatArray,
    idle_bytes: FloatArray,
    idle_value_s: FloatArray,
    warm: BoolArray,
    speed: FloatArray,
    open_row: IntArray,
    open_rest_s: FloatArray,
    open_parallelism: FloatArray,
    profile: FloatArray,
    wanted_bytes: float,
) -> FloatArray:
    """float64[candidates, 4] seconds: start, run, harm to others, eviction.

    `spare_bytes` is memory that neither calls nor idle instances hold; `idle_value_s` what all idle instances of a node would save their
    functions; `profile` what is believed of the function: start seconds, warm and cold core-seconds, cores used.
    """
    nodes = len(cores)
    used = profile[3]
    run = np.where(warm, profile[1] / used, profile[2] / used) / speed
    costs = np.zeros((nodes, 4))
    costs[:, 0] = np.where(warm, 0.0, profile[0] / speed)
    if len(open_row) > 0:
        threads = np.bincount(open_row, open_parallelism, nodes)
        run_there = run[open_row]
        overlap = np.minimum(open_rest_s, run_there)
        beside = np.bincount(open_row, open_parallelism * overlap / np.maximum(run_there, _LEAST_S), nodes)
        before = np.maximum(threads / cores, 1.0)
        after = np.maximum((threads + used) / cores, 1.0)
        costs[:, 1] = run * np.maximum((beside + used) / cores, 1.0)
        costs[:, 2] = HARM_SHARE * np.bincount(open_row, overlap, nodes) * (after / before - 1.0)
    else:
        costs[:, 1] = run * np.maximum(used / cores, 1.0)
    if idle_value_s.any():
        share = np.minimum(np.maximum(wanted_bytes - spare_bytes, 0.0) / np.maximum(idle_bytes, 1.0), 1.0)
        costs[:, 3] = np.where(warm, 0.0, idle_value_s * share)
    return costs


def total_s(costs: FloatArray) -> FloatArray:
    """float64[candidates] seconds: all parts together. Adding four columns takes a third of what a sum along each row does."""
    total: FloatArray = costs[:, 0] + costs[:, 1] + costs[:, 2] + costs[:, 3]
    return total
