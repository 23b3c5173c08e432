"""Inputs beyond the paper's 26: what a placement means for a node, estimated from what has been placed there and when.

Readings are up to a scrape window old, and a count of calls says nothing about their length. Both can be mended with what the
state of placements knows at any moment: for every unfinished call its age, and for its function the mean times, the mean work
and the cores it uses. Plain functions of arrays, compiled by the simulator and called with numpy by the policy that serves.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement.schema import FEATURES, NODE_READINGS

OUTLOOK: tuple[tuple[str, str, str], ...] = (
    ("cores", "cores", "allocatable processor cores of the node"),
    ("memory_capacity", "bytes", "allocatable memory of the node"),
    ("reading_age", "s", "how old the node's sample is"),
    ("memory_missing", "bytes", "memory that calls in flight and this one ask for beyond the node's capacity"),
    ("calls_left", "calls", "calls in flight, each weighted by the chance that it still runs"),
    ("work_left", "s", "work of those calls over the node's cores"),
    ("threads_left", "threads/core", "cores those calls can use, over the node's cores"),
    ("memory_left", "bytes", "capacity less memory of those calls"),
    ("same_inflight", "calls", "calls of the same function in flight"),
    ("warm_expected", "instances", "idle instances of the function, and calls of it that should have finished since the sample"),
    ("idle_memory", "bytes", "memory of all idle instances, which may be evicted"),
    ("work_added", "s", "work of this call on this node, warm or cold as it looks, over the node's cores"),
    ("alone_s", "s", "mean duration of this call on this node if nothing else ran"),
    ("parallelism", "share", "cores the function can use over the node's cores"),
    ("mean_work_left", "s", "mean of `work_left` over all candidates"),
    ("warm_elsewhere", "instances", "largest number of idle instances of the function on one candidate"),
)
"""Name, unit and meaning of each input after the first 26, in order."""

SCHEMA_OUTLOOK = "faasrank-42/1"
WIDTH = len(FEATURES) + len(OUTLOOK)
INPUT_NAMES: tuple[str, ...] = (*(feature.name for feature in FEATURES), *(name for name, _, _ in OUTLOOK))
"""Names of all 42 inputs, in order; a model that reads fewer reads the first ones."""
_BASE = len(FEATURES)
_READINGS = len(NODE_READINGS)
_LEAST_S = 0.05


def base_rows(
    readings: FloatArray,
    available_bytes: FloatArray,
    inflight: FloatArray,
    idle: FloatArray,
    wanted_bytes: float,
    init_s: float,
    width: int,
) -> FloatArray:
    """float32[candidates, width], the first 26 columns filled in the order of `FEATURES`; what nobody measured is NaN."""
    encoded = np.empty((width, len(inflight)), dtype=np.float32).T  # filled and read column by column
    encoded[:, :_READINGS] = readings
    encoded[:, _READINGS] = available_bytes
    encoded[:, _READINGS + 1] = inflight
    encoded[:, _READINGS + 2] = idle
    encoded[:, _READINGS + 3] = wanted_bytes
    encoded[:, _READINGS + 4] = init_s
    return encoded


def add_outlook(
    encoded: FloatArray,
    cores: FloatArray,
    capacity: FloatArray,
    reading_age_s: FloatArray,
    inflight_memory: FloatArray,
    idle: FloatArray,
    idle_memory: FloatArray,
    wanted_bytes: float,
    profile: FloatArray,
    open_row: IntArray,
    open_age_s: FloatArray,
    open_alone_s: FloatArray,
    open_work: FloatArray,
    open_parallelism: FloatArray,
    open_memory: FloatArray,
    open_same: BoolArray,
) -> None:
    """Fill the columns after the 26.

    `profile` is (warm_s, cold_s, warm work, cold work, parallelism) of the function asked for; the `open_*` arrays describe
    all unfinished calls, `open_row` being the candidate each is on.
    """
    nodes = len(cores)
    threads = np.bincount(open_row, open_parallelism, nodes)
    stretch = np.maximum(threads / cores, 1.0)
    chance = np.exp(-open_age_s / np.maximum(open_alone_s * stretch[open_row], _LEAST_S))
    same = open_same * 1.0
    work_left = np.bincount(open_row, open_work * chance, nodes) / cores
    warm = idle >= 1.0  # unknown is not warm
    column = _BASE
    encoded[:, column] = cores
    encoded[:, column + 1] = capacity
    encoded[:, column + 2] = reading_age_s
    encoded[:, column + 3] = np.maximum(inflight_memory + wanted_bytes - capacity, 0.0)
    encoded[:, column + 4] = np.bincount(open_row, chance, nodes)
    encoded[:, column + 5] = work_left
    encoded[:, column + 6] = np.bincount(open_row, open_parallelism * chance, nodes) / cores
    encoded[:, column + 7] = capacity - np.bincount(open_row, open_memory * chance, nodes)
    encoded[:, column + 8] = np.bincount(open_row, same, nodes)
    encoded[:, column + 9] = idle + np.bincount(open_row, same * (1.0 - chance), nodes)
    encoded[:, column + 10] = idle_memory
    encoded[:, column + 11] = np.where(warm, profile[2], profile[3]) / cores
    encoded[:, column + 12] = np.where(warm, profile[0], profile[1])
    encoded[:, column + 13] = profile[4] / cores
    encoded[:, column + 14] = work_left.sum() / nodes
    encoded[:, column + 15] = idle.max()
