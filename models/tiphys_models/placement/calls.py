"""Unfinished calls as columns, and what is known of the functions they run: the raw material of `features.outlook`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.base.promql import held_to

PROFILE_QUANTITIES = ("warm_seconds", "cold_seconds", "warm_core_seconds", "cold_core_seconds", "parallelism")


def profile_query(provenance: Mapping[str, str]) -> str:
    """What function runtimes report of their functions; `function` is `namespace/name` as in `function_of`, `quantity` one of
    `PROFILE_QUANTITIES`."""
    return f"max by (function, quantity) ({held_to('tiphys_runtime_call_profile', provenance)})"


@dataclass(frozen=True, slots=True)
class FunctionProfile:
    """Means over calls of one function that had a node to themselves."""

    warm_s: float
    """Duration on an idle instance."""
    cold_s: float
    """Duration on a new instance, its start included."""
    warm_work_core_s: float
    cold_work_core_s: float
    """Processor time of the same."""
    parallelism: float
    """Cores that one call can use."""

    def as_row(self) -> tuple[float, float, float, float, float]:
        """The means in the order of `PROFILE_QUANTITIES`."""
        return (self.warm_s, self.cold_s, self.warm_work_core_s, self.cold_work_core_s, self.parallelism)


@dataclass(frozen=True, slots=True)
class OpenCalls:
    """All unfinished calls of the cluster, one row each, and what the request's own function is like.

    Arrays belong to the state of placements and change with it: look, do not keep.
    """

    now_s: float
    rows: int
    """Length of the table of all known nodes."""
    node_row: IntArray
    """Row in the table of all known nodes; -1 for a node nobody knows (yet)."""
    at_s: FloatArray
    """When the call was placed."""
    function: IntArray
    warm: BoolArray
    """Whether an idle instance was in sight then."""
    memory_bytes: FloatArray
    profiles: FloatArray
    """float64[functions + 1, 5] in the order of `PROFILE_QUANTITIES`; the mean of the others where nobody has reported, and last,
    for functions without any call so far; NaN where nobody has reported anything."""
    own_function: int
    """-1 before its first call."""
    read_at_s: FloatArray
    """Per candidate: when its node was sampled; NaN never."""
    idle_memory_bytes: FloatArray
    """Per candidate: memory of all idle instances."""

    def on(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """The calls on these rows, and for each the place of its row among them."""
        asked = np.zeros(self.rows + 1, np.bool_)  # an unknown node is -1: the last entry, which is nobody's
        asked[rows] = True
        here = asked.take(self.node_row).nonzero()[0]
        place = np.empty(self.rows, np.int64)
        place[rows] = np.arange(len(rows))
        return here, place.take(self.node_row.take(here))


def filled(profiles: FloatArray) -> FloatArray:
    """Rows with the mean of all known functions where nobody has reported, and one row more, which is that mean."""
    known = profiles[~np.isnan(profiles).any(axis=1)]
    typical = known.mean(axis=0) if len(known) else np.full(profiles.shape[1], np.nan)
    return np.vstack([np.where(np.isnan(profiles), typical, profiles), typical])


_FEW, _MANY = 8, 100
"""Nodes whose calls are looked for one by one, and calls that are added one by one; of more, all are added up anew."""


class CallTable:
    """Grows by doubling; a finished call's row goes to the last one."""

    def __init__(self, capacity: int = 256) -> None:
        self._row_of: dict[str, int] = {}
        self._uids: list[str] = []
        self._node_row = np.full(capacity, -1, np.int64)
        self._at_s = np.zeros(capacity)
        self._function = np.zeros(capacity, np.int64)
        self._warm = np.zeros(capacity, np.bool_)
        self._cold = np.zeros(capacity, np.bool_)
        self._memory = np.zeros(capacity)
        self._threads: FloatArray | None = None
        self._moved: set[int] = set()
        """Rows of nodes of which calls have gone, or changed places, since threads were added up."""
        self._added: set[int] = set()
        """Places of calls that have come since."""

    def __len__(self) -> int:
        return len(self._uids)

    def add(self, uid: str, node_row: int, at_s: float, function: int, warm: bool, memory_bytes: float, cold: bool) -> None:
        """A call was placed."""
        row = len(self._uids)
        if row == len(self._at_s):
            for name in ("_node_row", "_at_s", "_function", "_warm", "_cold", "_memory"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self._row_of[uid] = row
        self._uids.append(uid)
        self._node_row[row], self._at_s[row], self._function[row] = node_row, at_s, function
        self._warm[row], self._cold[row], self._memory[row] = warm, cold, memory_bytes
        if self._threads is not None:
            self._added.add(row)

    def remove(self, uid: str) -> None:
        """Remove a finished call; unknown calls are ignored."""
        row = self._row_of.pop(uid, -1)
        if row < 0:
            return
        last = self._uids.pop()
        self._moved.update((int(self._node_row[row]), int(self._node_row[len(self._uids)])))
        if last != uid:
            end = len(self._uids)
            self._uids[row] = last
            self._row_of[last] = row
            for column in (self._node_row, self._at_s, self._function, self._warm, self._cold, self._memory):
                column[row] = column[end]

    def was_warm(self, uid: str) -> bool | None:
        """What was noted when the call was placed; None for a call nobody noted."""
        row = self._row_of.get(uid)
        return None if row is None else bool(self._warm[row])

    def was_cold(self, uid: str) -> bool:
        """Whether the books listed no idle instance when the call was placed."""
        row = self._row_of.get(uid)
        return row is None or bool(self._cold[row])

    def node_gone(self, node_row: int) -> None:
        """The row will be another node's."""
        rows = self._node_row[: len(self)]
        rows[rows == node_row] = -1
        self._moved.add(node_row)

    def put_on(self, uid: str, node_row: int) -> None:
        """The node of a call has become known."""
        row = self._row_of.get(uid)
        if row is not None:
            self._node_row[row] = node_row
            self._moved.add(node_row)

    def placed(self) -> tuple[IntArray, FloatArray, IntArray, BoolArray]:
        """Row of the node, time, function and whether it started cold, of every unfinished call; without copies."""
        n = len(self)
        return self._node_row[:n], self._at_s[:n], self._function[:n], self._cold[:n]

    def threads(self, cores_used: FloatArray, rows: int, *, changed: bool) -> FloatArray:
        """Cores that all calls on each row of the node table could use together, `cores_used` being what a call of each function uses.

        Between two decisions few nodes see a call come or go: only theirs are added up again, in the order in which all would be, so that
        not even the last digit depends on what happened before.
        """
        n = len(self)
        on, threads = self._node_row[:n], self._threads
        if changed or threads is None or len(threads) != rows or len(self._moved) > _FEW or len(self._added) > _MANY:
            there = np.flatnonzero(on >= 0)
            threads = np.asarray(np.bincount(on[there], cores_used[self._function[there]], rows), np.float64)
            self._threads = threads
        else:
            for row in self._moved - {-1}:
                used = cores_used[self._function[np.flatnonzero(on == row)]]
                threads[row] = np.bincount(np.zeros(len(used), np.int64), used, 1)[0]
            for place in sorted(self._added):  # the last of all calls of their nodes, unless a call has gone since
                if place < n and (row := int(on[place])) not in self._moved and row >= 0:
                    threads[row] += cores_used[self._function[place]]
        self._moved.clear()
        self._added.clear()
        return threads

    def seen(
        self, now_s: float, rows: int, profiles: FloatArray, own_function: int, read_at_s: FloatArray, idle_memory_bytes: FloatArray
    ) -> OpenCalls:
        """The columns, without copies."""
        n = len(self)
        return OpenCalls(
            now_s, rows, self._node_row[:n], self._at_s[:n], self._function[:n], self._warm[:n], self._memory[:n], profiles,
            own_function, read_at_s, idle_memory_bytes,
        )  # fmt: skip
