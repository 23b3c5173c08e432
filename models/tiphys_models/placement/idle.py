"""Idle instances of every function on every node: what runtimes reported, less what has been placed there since.

Kept sparse: a function costs memory for the nodes on which somebody reported an idle instance of it, and for nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.placement.table import UNKNOWN, NodeTable, grown

_MOST_COLUMNS = 128
_COLUMN_BYTES = 2 * 2**20
"""Most bytes of all columns together: on thousands of nodes fewer are kept, and another takes ten microseconds to make."""
MOST_INSTANCES = 1e6
"""Most idle instances believed of a function on one node; a larger report counts as this many."""


class IdleInstances:
    """Idle instances per function, on those rows of the node table that have some; a column tells when each node last reported."""

    def __init__(self, nodes: NodeTable, most_functions: int = 2_000) -> None:
        self._nodes, self._most_functions = nodes, most_functions
        self._reported: dict[str, dict[int, float]] = {}
        """function -> row -> instances, none of them zero; least recently reported first."""
        self._taken: dict[str, dict[int, int]] = {}
        """function -> row -> placements that the node's report has not seen."""
        self._placed: dict[str, dict[str, tuple[str, float]]] = {}
        """function -> uid -> (node, when): placements that the node's last report, if any, has not seen."""
        self._newest_bytes: dict[str, float] = {}
        """Memory of one instance, as the function's newest placement asked for."""
        self._at_s = np.full(nodes.capacity, math.nan)
        """When the node last reported; it has said of every function how many there are, zero where it named none."""
        self._base = np.full(nodes.capacity, math.nan)
        """Zero where the node has reported, else NaN."""
        self._total_bytes = self._base.copy()
        self._columns: dict[str, FloatArray] = {}
        """What is left of a function on every row, for the few functions that requests name."""
        self.evicted = 0
        """Functions whose report was let go because there were too many."""

    def __len__(self) -> int:
        """How many functions have idle instances somewhere."""
        return len(self._reported)

    @property
    def reported(self) -> Mapping[str, Mapping[int, float]]:
        """function -> row -> instances as last reported, none of them zero."""
        return self._reported

    def left(self, function: str, rows: IntArray) -> FloatArray:
        """Reported less taken, never below zero, of one function on these rows; NaN where nobody reports."""
        self._fit()
        column = self._columns.get(function)
        if column is None:
            if function not in self._reported:
                unnamed: FloatArray = self._base[rows]
                return unnamed
            if len(self._columns) >= max(min(_MOST_COLUMNS, _COLUMN_BYTES // (8 * len(self._base))), 1):
                del self._columns[next(iter(self._columns))]
            column = self._columns[function] = self._made(function)
        left: FloatArray = column[rows]
        return left

    def can_take(self, function: str, row: int) -> bool:
        """Whether an idle instance is in sight there."""
        return row != UNKNOWN and self._left_at(function, row) >= 1

    def total_bytes(self, rows: IntArray) -> FloatArray:
        """Memory of all idle instances; NaN where nobody reports."""
        self._fit()
        return self._total_bytes[rows]

    def report(self, counts: Mapping[str, Mapping[str, float]], nodes: Sequence[str], rows: IntArray, at_s: FloatArray) -> None:
        """What the runtimes of these nodes, on these rows, said at these times. Functions that `counts` does not name have none."""
        self._fit()
        self._at_s[rows] = at_s
        self._base[rows] = np.where(np.isnan(at_s), math.nan, 0.0)
        place = dict(zip(nodes, rows.tolist(), strict=True))
        self._forget_on(set(place.values()))
        for name, by_node in counts.items():
            said = {place[node]: min(count, MOST_INSTANCES) for node, count in by_node.items() if count > 0 and node in place}
            if said:
                self._reported[name] = self._reported.pop(name, {}) | said  # to the end: the most recently reported
        # all at once: to look for the first of a dictionary whose beginning was deleted costs as much as what was deleted
        for name in list(islice(self._reported, max(len(self._reported) - self._most_functions, 0))):
            del self._reported[name]
            self.evicted += 1
        for name in list(self._placed):
            self._take_unseen(name)
        self._add_up()
        # now, and not when the next request asks: requests are waited for
        self._columns = {name: self._made(name) for name in self._columns if name in self._reported}

    def placed(self, function: str, uid: str, node: str, row: int, at_s: float, memory_bytes: float) -> None:
        """An instance is in use, or will be."""
        self._fit()
        self._resize(function, memory_bytes)
        if row == UNKNOWN or at_s <= self._at_s[row]:
            return  # nobody's, or the report has seen it
        self._placed.setdefault(function, {})[uid] = (node, at_s)
        self._take(function, row, +1)

    def finished(self, function: str, uid: str) -> None:
        """The placement is over or withdrawn. A report that has seen it stays as it is."""
        of_function = self._placed.get(function)
        placed = of_function.pop(uid, None) if of_function is not None else None
        if not of_function:
            self._placed.pop(function, None)
        if placed is None:
            return
        self._fit()
        row = self._nodes.row_of[placed[0]]
        if row != UNKNOWN and not placed[1] <= self._at_s[row]:
            self._take(function, row, -1)

    def forget(self, function: str) -> None:
        """Nothing of it is open or reported: what its instances ask for need not be known any longer."""
        if function not in self._reported and function not in self._placed:
            self._newest_bytes.pop(function, None)
            self._taken.pop(function, None)

    def forget_row(self, row: int) -> None:
        """The row is a new node's, of which nobody has reported."""
        self._fit()
        self._forget_on({row})
        for taken in self._taken.values():
            taken.pop(row, None)
        self._at_s[row] = self._base[row] = self._total_bytes[row] = math.nan
        for column in self._columns.values():
            column[row] = math.nan

    def expire(self, oldest_s: float) -> IntArray:
        """Reports from before that time count as missing; the rows concerned."""
        self._fit()
        rows = np.flatnonzero(self._at_s < oldest_s)
        if len(rows):
            self._at_s[rows] = self._base[rows] = math.nan
            self._forget_on(set(rows.tolist()))
            self._add_up()
            for column in self._columns.values():
                column[rows] = math.nan
        return rows

    def _made(self, function: str) -> FloatArray:
        column: FloatArray = self._base.copy()
        reported, taken = self._reported[function], self._taken.get(function, {})
        column[np.fromiter(reported, np.int64, len(reported))] = np.fromiter(reported.values(), np.float64, len(reported))
        for row, count in taken.items():
            column[row] = np.maximum(column[row] - count, 0.0)  # NaN stays NaN
        return column

    def _left_at(self, function: str, row: int) -> float:
        reported = self._reported.get(function, {}).get(row)
        return 0.0 if reported is None else max(reported - self._taken.get(function, {}).get(row, 0), 0.0)

    def _take(self, function: str, row: int, sign: int) -> None:
        before = self._left_at(function, row)
        taken = self._taken.setdefault(function, {})
        taken[row] = max(taken.get(row, 0) + sign, 0)  # a node that left and came back has another row, on which nothing was taken
        if not taken[row]:
            del taken[row]
        if not taken:
            del self._taken[function]
        left = self._left_at(function, row)
        self._total_bytes[row] += (left - before) * self._newest_bytes.get(function, 0.0)
        if (column := self._columns.get(function)) is not None and row in self._reported.get(function, ()):
            column[row] = left

    def _take_unseen(self, name: str) -> None:
        """Count the placements that the newest reports have not seen; forget the others."""
        unseen: dict[str, tuple[str, float]] = {}
        taken: dict[int, int] = {}
        for uid, (node, at_s) in self._placed.pop(name, {}).items():
            row = self._nodes.row_of[node]
            if row != UNKNOWN and not at_s <= self._at_s[row]:
                unseen[uid] = (node, at_s)
                taken[row] = taken.get(row, 0) + 1
        self._taken.pop(name, None)
        if unseen:
            self._placed[name], self._taken[name] = unseen, taken

    def _resize(self, function: str, memory_bytes: float) -> None:
        before = self._newest_bytes.get(function, 0.0)
        self._newest_bytes[function] = memory_bytes
        if before != memory_bytes:
            for row in self._reported.get(function, ()):
                self._total_bytes[row] += (memory_bytes - before) * self._left_at(function, row)

    def _add_up(self) -> None:
        total = self._base.copy()
        for name, reported in self._reported.items():
            size, taken = self._newest_bytes.get(name, 0.0), self._taken.get(name, {})
            for row, count in reported.items():
                total[row] += size * max(count - taken.get(row, 0), 0.0)
        self._total_bytes = total

    def _forget_on(self, rows: set[int]) -> None:
        for name, reported in list(self._reported.items()):
            for row in rows & reported.keys():
                del reported[row]
            if not reported:
                del self._reported[name]

    def _fit(self) -> None:
        """Widen the columns to the node table, which grows."""
        width = self._nodes.capacity
        if len(self._at_s) < width:
            self._at_s, self._base = grown(self._at_s, width, math.nan), grown(self._base, width, math.nan)
            self._total_bytes = grown(self._total_bytes, width, math.nan)
            self._columns.clear()
