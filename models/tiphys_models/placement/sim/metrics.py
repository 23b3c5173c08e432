"""Figures from records: nothing is counted twice, nothing is counted while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.sim.episode import CallRecords
from tiphys_models.placement.sim.functions import FUNCTIONS

GRID_S = 0.1
"""Step of the grid on which calls in flight of several policies are compared."""


def remaining(records: CallRecords) -> FloatArray:
    """Integral of the calls in flight from each arrival on, that call and all later ones included."""
    from_then = np.maximum(records.arrival_s[None, :], records.arrival_s[:, None])
    return np.asarray(np.maximum(records.finish_s[None, :] - from_then, 0.0).sum(axis=1))


def inflight(records: CallRecords, at_s: FloatArray) -> FloatArray:
    """Calls that have arrived and not finished, at each of these times."""
    arrived = np.searchsorted(np.sort(records.arrival_s), at_s, side="right")
    finished = np.searchsorted(np.sort(records.finish_s), at_s, side="right")
    return np.asarray(arrived - finished, np.float64)


def lower_share(records: CallRecords, others: Sequence[CallRecords]) -> float:
    """Share of the time, until the last of them is done, in which `records` has fewer calls in flight than each of `others`."""
    end_s = max(float(r.finish_s.max()) for r in (records, *others))
    grid = np.arange(0.0, end_s, GRID_S)
    least = np.min([inflight(r, grid) for r in others], axis=0)
    return float((inflight(records, grid) < least).mean())


def stretch(records: CallRecords) -> Mapping[str, float]:
    """Per function: mean completion time over the time a lone cold call takes."""
    times = records.completion_s
    result = {}
    for index, function in enumerate(FUNCTIONS):
        own = times[records.function == index]
        if len(own):
            result[function.name] = float(own.mean() / function.cold_s)
    return result


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index: 1 if all are equal, 1 / n if one has everything."""
    array = np.asarray(values, np.float64)
    return float(array.sum() ** 2 / (len(array) * (array**2).sum()))


def fullest_share(records: CallRecords, nodes: int) -> float:
    """Share of all calls on the node that got most of them: 1 / nodes when spread evenly, 1 when everything herds."""
    return float(np.bincount(records.node, minlength=nodes).max() / len(records.node))
