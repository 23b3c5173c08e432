"""What has been learned of functions from their calls that ended, and of nodes from the calls that ended there: the tables around the
plain functions of `learned_profiles`, a row a function and a row a node."""

from __future__ import annotations

import math

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.placement import learned_profiles
from tiphys_models.placement.learned_profiles import (
    CORES_USED,
    DECLARED_CALLS,
    ENDED,
    ENOUGH,
    NOTHING_KNOWN,
    START_S,
    TYPICAL_CALLS,
    WIDTH,
)
from tiphys_models.placement.profiles import Profiles
from tiphys_models.placement.table import grown

_LEAST_CORES = 0.05


class LearnedProfiles:
    """A declared profile is a prior; where nobody has declared one, what is usual among those that are declared.

    Rows are those of `Functions` and of the node table: a function costs fifteen numbers, a node three.
    """

    def __init__(self, declared: Profiles) -> None:
        self._declared = declared
        self._version = -1
        self.rows = learned_profiles.new_rows(16)
        self._priors: FloatArray = np.zeros((16, 4))
        self._prior_calls: FloatArray = np.zeros(16)
        self._believed: FloatArray = np.zeros((16, 4))
        self._usual: FloatArray = np.array(NOTHING_KNOWN)
        self._node_rows = learned_profiles.new_node_rows(64)
        self._speeds: FloatArray | None = None

    def believed(self) -> FloatArray:
        """float64[functions, 4]: what is believed of each, in the order of `learned_profiles`."""
        self._refresh()
        return self._believed

    def believed_of(self, row: int) -> FloatArray:
        """The same of one function; of one that nobody has heard of, -1, what is usual."""
        self._refresh()
        return self._usual if row < 0 else self._believed[row]

    def is_known(self, row: int) -> bool:
        """Whether enough is known of a function to judge it by: its profile was declared, or calls of it were seen to end."""
        self._refresh()
        return row >= 0 and bool(self._prior_calls[row] >= 1.0 or self.rows[row, ENDED] >= ENOUGH)

    def least_share_left(self) -> float:
        """How much of its expected time a call that is overdue has still to go."""
        return learned_profiles.least_share_left(self.rows)

    def speeds(self, nodes: int) -> FloatArray:
        """How fast each node is beside the others."""
        if self._speeds is None or len(self._speeds) < nodes:
            self._node_rows = grown(self._node_rows, max(nodes, len(self._node_rows)), 0.0)
            self._speeds = learned_profiles.speeds(self._node_rows, self.rows)
        return self._speeds

    def ended(self, function: int, node: int, *, cold: bool, start_s: float, run_s: float, work_core_s: float) -> None:
        """A call has run to its end; `start_s` and `work_core_s` are NaN where nobody has seen them."""
        self._refresh()
        row, believed = self.rows[function], self._believed[function]
        if math.isnan(start_s):
            start_s = min(float(believed[START_S]), run_s) if cold else 0.0
            run_s -= start_s
        if math.isnan(work_core_s):
            learned_profiles.learn(row, believed, cold, start_s, 0.0, run_s * believed[CORES_USED])
        else:
            speed = float(self.speeds(node + 1)[node])
            learned_profiles.learn_node(self._node_rows[node], row, believed, cold, work_core_s)
            learned_profiles.learn(row, believed, cold, start_s * speed, run_s * speed, work_core_s * speed)
            self._speeds = None
        self._believed[function] = learned_profiles.believe(row, self._priors[function], float(self._prior_calls[function]))

    def forget(self, function: int) -> None:
        """The function of that row was evicted."""
        if function >= len(self.rows):
            return
        self.rows[function] = 0.0
        if self._version != self._declared.version:
            return  # all rows are taken over anew before anybody looks
        self._priors[function], self._prior_calls[function] = self._usual, TYPICAL_CALLS
        self._believed[function] = learned_profiles.believe(self.rows[function], self._usual, TYPICAL_CALLS)

    def forget_node(self, node: int) -> None:
        """The node of that row is gone."""
        if node < len(self._node_rows):
            self._node_rows[node] = 0.0
            self._speeds = None

    def _refresh(self) -> None:
        """Take over what has been declared since."""
        declared = self._declared.rows
        if self._version == self._declared.version and len(declared) == len(self.rows):
            return
        self._version = self._declared.version
        if len(declared) > len(self.rows):
            self.rows = grown(self.rows, len(declared), 0.0)
        told = _as_profiles(declared)
        known: BoolArray = np.asarray(np.isfinite(told).all(axis=1))
        self._usual = told[known].mean(axis=0) if known.any() else np.array(NOTHING_KNOWN)
        self._priors = np.where(known[:, None], told, self._usual)
        self._prior_calls = np.where(known, DECLARED_CALLS, TYPICAL_CALLS)
        self._believed = learned_profiles.believe_all(self.rows, self._priors, self._prior_calls)


def _as_profiles(declared: FloatArray) -> FloatArray:
    """What runtimes report, as seconds of a start, work of a warm and of a cold call, and cores used."""
    cores = np.maximum(declared[:, 4], _LEAST_CORES)
    start_s = np.maximum(declared[:, 1] - declared[:, 3] / cores, 0.0)
    return np.stack([start_s, declared[:, 2], np.maximum(declared[:, 2], declared[:, 3]), cores], axis=1)


__all__ = ["WIDTH", "LearnedProfiles"]
