"""What a small network adds to the estimate of a placement's cost, and to how far waiting is trusted: nothing at all before it is trained.

Plain functions of arrays: the policy that serves calls them with numpy, the simulator compiles them. Seconds are read in units of what
warmth saves the function, and what comes out is in these units again, so that fast and slow functions look alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.estimator import EVICTION, HARM, RUN, START

SCHEMA = "estimator-parts/1"
"""Version of both sets of inputs."""
NODE_INPUTS = ("warm", "start", "crowding", "harm", "eviction", "work_left", "same", "filled", "busy", "cold_where_full")
"""Of each candidate: an idle instance is listed; parts of the estimate; work still to do; open calls of the function for each core; memory
of calls and idle instances, and of calls alone, over the node's; mean of the former over all candidates if the call would start cold."""
WAIT_INPUTS = ("ahead", "warmth", "open", "awaited", "eviction", "crowding", "filled", "queued", "seconds")
"""Of the question whether to wait: share of open calls that others wait for, what warmth saves over a warm run, open calls of the function,
how soon an instance is expected over what it saves, parts of the best node's estimate, mean memory in use, whether others wait."""
MOST_ADDED = 1.0
"""Most that is added to a node's cost or taken from it, in units of what warmth saves."""
MOST_TRUST = 0.7
"""Largest logarithm of what trust in waiting is multiplied by."""
_MOST = 5.0
_LEAST_S = 1e-3


class Head(NamedTuple):
    """A network with one hidden layer, and a straight way past it."""

    straight: FloatArray
    """[inputs]"""
    hidden: FloatArray
    """[inputs, units]"""
    bias: FloatArray
    """[units]"""
    out: FloatArray
    """[units]"""


def forward(rows: FloatArray, straight: FloatArray, hidden: FloatArray, bias: FloatArray, out: FloatArray) -> FloatArray:
    """float64[rows, inputs] -> float64[rows]."""
    answer: FloatArray = rows @ straight + np.tanh(rows @ hidden + bias) @ out
    return answer


def node_inputs(
    costs: FloatArray, run_s: FloatArray, warm: FloatArray, left_s: FloatArray, same: FloatArray, filled: FloatArray, busy: FloatArray,
    saved_s: float,
) -> FloatArray:  # fmt: skip
    """float64[candidates, 10] in the order of `NODE_INPUTS`; `costs` are `estimator.placement_costs`, `run_s` a run that is not crowded."""
    unit_s = max(saved_s, _LEAST_S)
    rows = np.empty((len(costs), 10))
    rows[:, 0] = warm
    rows[:, 1] = costs[:, START] / unit_s
    rows[:, 2] = np.log1p(np.maximum(costs[:, RUN] - run_s, 0.0) / unit_s)
    rows[:, 3] = np.log1p(costs[:, HARM] / unit_s)
    rows[:, 4] = np.log1p(costs[:, EVICTION] / unit_s)
    rows[:, 5] = np.log1p(left_s / unit_s)
    rows[:, 6] = 8.0 * same
    rows[:, 7] = filled
    rows[:, 8] = busy
    rows[:, 9] = (1.0 - warm) * filled.sum() / max(len(filled), 1)
    return np.minimum(np.maximum(rows, 0.0), _MOST)


def wait_inputs(
    costs: FloatArray, run_s: float, mean_filled: float, saved_s: float, warm_run_s: float, awaited_s: float, gain_s: float, before: int,
    open_calls: int,
) -> FloatArray:  # fmt: skip
    """float64[1, 9] in the order of `WAIT_INPUTS`; `costs` and `run_s` are those of the best node, `gain_s` is what an instance that is
    free now would save."""
    total_s = max(costs.sum(), _LEAST_S)
    row = np.empty((1, 9))
    row[0, 0] = before / max(open_calls, 1)
    row[0, 1] = 0.3 * np.log(max(saved_s, _LEAST_S) / max(warm_run_s, _LEAST_S))
    row[0, 2] = 0.5 * np.log1p(open_calls)
    row[0, 3] = awaited_s / max(gain_s, _LEAST_S)
    row[0, 4] = costs[EVICTION] / total_s
    row[0, 5] = (costs[RUN] - run_s + costs[HARM]) / total_s
    row[0, 6] = mean_filled
    row[0, 7] = 1.0 if before > 0 else 0.0
    row[0, 8] = 0.3 * awaited_s
    return np.minimum(np.maximum(row, -_MOST), _MOST)


def bounded(answer: FloatArray, most: float) -> FloatArray:
    """What a network says, within what it may say; a guardrail outside the weights."""
    found: FloatArray = np.minimum(np.maximum(answer, -most), most)
    return found


def flat(heads: tuple[Head, Head]) -> FloatArray:
    """All numbers of both heads, nodes first, as training moves them and the simulator reads them."""
    return np.concatenate([np.asarray(part, np.float64).ravel() for head in heads for part in head])


def heads_of(weights: FloatArray) -> tuple[Head, Head]:
    """Both heads out of all their numbers."""
    widths = (len(NODE_INPUTS), len(WAIT_INPUTS))
    units = (len(weights) - sum(widths)) // (sum(widths) + 4)
    found, at = [], 0
    for width in widths:
        parts = np.split(weights[at : at + width + units * (width + 2)], np.cumsum([width, width * units, units]))
        found.append(Head(parts[0], parts[1].reshape(width, units), parts[2], parts[3]))
        at += width + units * (width + 2)
    return found[0], found[1]
