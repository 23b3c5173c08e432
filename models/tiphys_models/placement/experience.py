"""What has been learned of functions from their calls that ended, and of nodes from the calls that ended there: the tables around the
plain functions of `learned_profiles`, a row a function and a row a node."""

from __future__ import annotations

import math

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement import learned_profiles
from tiphys_models.placement.learned_profiles import (
    COLD_WORK,
    CORES_USED,
    DECLARED_CALLS,
    ENDED,
    ENOUGH,
    NOTHING_KNOWN,
    START_S,
    TYPICAL_CALLS,
    WARM_WORK,
    WIDTH,
)
from tiphys_models.placement.profiles import Profiles
from tiphys_models.placement.table import grown

_LEAST_CORES = 0.05


class LearnedProfiles:
    """A declared profile is a prior, or else one that was learned elsewhere; or else what is usual among the functions that have one.

    Rows are those of `Functions` and of the node table: a function costs fifteen numbers, a node three.
    """

    def __init__(self, declared: Profiles) -> None:
        self._declared = declared
        self._version = -1
        self.rows = learned_profiles.new_rows(16)
        self._priors: FloatArray = np.zeros((16, 4))
        self._prior_calls: FloatArray = np.zeros(16)
        self._believed: FloatArray = np.zeros((16, 4))
        self._cores_used: FloatArray = np.zeros(16)
        self._alone_start_s: FloatArray = np.zeros(32)
        self._alone_run_s: FloatArray = np.zeros(32)
        self.cores_version = 0
        """Changes with what calls of any function are believed to use."""
        self._measured: FloatArray = np.zeros(16)
        self._usual: FloatArray = np.array(NOTHING_KNOWN)
        self._node_rows = learned_profiles.new_node_rows(64)
        self._differences: FloatArray | None = None
        self._least_share: float | None = None

    def believed(self) -> FloatArray:
        """float64[functions, 4]: what is believed of each, in the order of `learned_profiles`."""
        self._refresh()
        return self._believed

    def cores_used(self) -> FloatArray:
        """float64[functions]: the cores that a call of each is believed to use, in one piece."""
        self._refresh()
        return self._cores_used

    def alone_s(self) -> tuple[FloatArray, FloatArray]:
        """What start and run take on a node of its own: a warm call of function f at place 2f, a cold one at 2f + 1."""
        self._refresh()
        return self._alone_start_s, self._alone_run_s

    def believed_of(self, row: int) -> FloatArray:
        """The same of one function; of one that nobody has heard of, -1, what is usual."""
        self._refresh()
        return self._usual if row < 0 else self._believed[row]

    def is_known(self, row: int) -> bool:
        """Whether enough is known of a function to judge it by: its profile was declared, or calls of it were seen to end."""
        self._refresh()
        return row >= 0 and bool(self._prior_calls[row] >= 1.0 or self.rows[row, ENDED] >= ENOUGH)

    def is_measured(self, row: int) -> bool:
        """Whether somebody has said how many cores calls of a function use, or processor time of enough of them was seen."""
        self._refresh()
        return row >= 0 and bool(self._prior_calls[row] >= 1.0 or self._measured[row] >= ENOUGH)

    def least_share_left(self) -> float:
        """How much of its expected time a call that is overdue has still to go."""
        if self._least_share is None:
            self._least_share = learned_profiles.least_share_left(self.rows)
        return self._least_share

    def speeds(self, nodes: IntArray) -> FloatArray:
        """How fast these nodes are beside all others."""
        if len(self._node_rows) <= (most := int(nodes.max(initial=-1))):
            self._node_rows = grown(self._node_rows, max(most + 1, 2 * len(self._node_rows)), 0.0)
        if self._differences is None:
            self._differences = learned_profiles.differences(self._node_rows, self.rows)
        # each call that ends changes them a little: thousands of nodes are not judged anew for the hundreds that somebody asks for
        return learned_profiles.speeds(self._node_rows.take(nodes, axis=0), self._differences)

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
            self._measured[function] += 1.0
            speed = float(self.speeds(np.array([node]))[0])
            learned_profiles.learn_node(self._node_rows[node], row, believed, cold, work_core_s)
            learned_profiles.learn(row, believed, cold, start_s * speed, run_s * speed, work_core_s * speed)
            self._differences = None
        self._least_share = None
        self._believe(function)

    def forget(self, function: int) -> None:
        """The function of that row was evicted."""
        if function >= len(self.rows):
            return
        self.rows[function] = self._measured[function] = 0.0
        self._least_share = None
        if self._version != self._declared.version:
            return  # all rows are taken over anew before anybody looks
        self._priors[function], self._prior_calls[function] = self._usual, TYPICAL_CALLS
        self._believe(function)

    def forget_node(self, node: int) -> None:
        """The node of that row is gone."""
        if node < len(self._node_rows):
            self._node_rows[node] = 0.0
            self._differences = None

    def _believe(self, function: int) -> None:
        believed = learned_profiles.believe(self.rows[function], self._priors[function], float(self._prior_calls[function]))
        self._believed[function] = believed
        self._alone_start_s[2 * function + 1] = believed[START_S]
        self._alone_run_s[2 * function] = believed[WARM_WORK] / believed[CORES_USED]
        self._alone_run_s[2 * function + 1] = believed[COLD_WORK] / believed[CORES_USED]
        if self._cores_used[function] != believed[CORES_USED]:
            self._cores_used[function] = believed[CORES_USED]
            self.cores_version += 1

    # ---- what was learned before, or elsewhere -------------------------------------------------------------------

    def kept(self, row: int) -> FloatArray:
        """float64[WIDTH + 1]: everything learned of a function, and of how many of its calls processor time was seen."""
        self._refresh()
        return np.append(self.rows[row], self._measured[row])

    def kept_of_node(self, row: int) -> FloatArray:
        """Everything learned of a node."""
        return self._node_rows[row].copy() if row < len(self._node_rows) else np.zeros(2)

    def recall(self, row: int, kept: FloatArray) -> None:
        """Take over what a former process has learned of a function, unless this one knows of ended calls already."""
        if row >= len(self.rows):
            self._refresh()
        if self.rows[row, ENDED] > 0:
            return
        self.rows[row], self._measured[row] = kept[:WIDTH], kept[WIDTH]
        self._version = -1
        self._differences = self._least_share = None

    def recall_node(self, row: int, kept: FloatArray) -> None:
        """The same of a node."""
        self._node_rows = grown(self._node_rows, max(row + 1, len(self._node_rows)), 0.0)
        self._node_rows[row] = kept
        self._differences = None

    def _refresh(self) -> None:
        """Take over what has been declared since."""
        declared = self._declared.rows
        if self._version == self._declared.version and len(declared) == len(self.rows):
            return
        self._version = self._declared.version
        if len(declared) > len(self.rows):
            self.rows = grown(self.rows, len(declared), 0.0)
            self._measured = grown(self._measured, len(declared), 0.0)
        told = _as_profiles(declared)
        declares: BoolArray = np.asarray(np.isfinite(told).all(axis=1))
        told = np.where(declares[:, None], told, self._declared.published_rows)
        known: BoolArray = np.asarray(np.isfinite(told).all(axis=1))
        self._usual = told[known].mean(axis=0) if known.any() else np.array(NOTHING_KNOWN)
        self._priors = np.where(known[:, None], told, self._usual)
        self._prior_calls = np.where(known, DECLARED_CALLS, TYPICAL_CALLS)
        self._believed = learned_profiles.believe_all(self.rows, self._priors, self._prior_calls)
        self._least_share = None
        self._cores_used = self._believed[:, CORES_USED].copy()
        self._alone_start_s = (self._believed[:, [START_S]] * (0.0, 1.0)).ravel()
        self._alone_run_s = (self._believed[:, [WARM_WORK, COLD_WORK]] / self._cores_used[:, None]).ravel()
        self.cores_version += 1


def _as_profiles(declared: FloatArray) -> FloatArray:
    """What runtimes report, as seconds of a start, work of a warm and of a cold call, and cores used."""
    cores = np.maximum(declared[:, 4], _LEAST_CORES)
    start_s = np.maximum(declared[:, 1] - declared[:, 3] / cores, 0.0)
    return np.stack([start_s, declared[:, 2], np.maximum(declared[:, 2], declared[:, 3]), cores], axis=1)


__all__ = ["WIDTH", "LearnedProfiles"]
