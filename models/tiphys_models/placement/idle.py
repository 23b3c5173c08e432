"""Idle instances of every function on every node: what runtimes reported, less what has been placed there since."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tiphys_models.features.arrays import FloatArray, IntArray
from tiphys_models.placement.table import UNKNOWN, NodeTable, grown


class IdleInstances:
    """One row a function that was known when some runtime reported, one column a row of the node table."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._slots: dict[str, int] = {}
        self._placed: dict[str, dict[str, tuple[str, float]]] = {}
        """function -> uid -> (node, when): placements that the node's last report, if any, has not seen."""
        self._newest_bytes: dict[str, float] = {}
        self._reported = np.zeros((0, nodes.capacity))
        self._reported_at_s = np.zeros((0, nodes.capacity))
        self._taken = np.zeros((0, nodes.capacity))
        self._left = np.zeros((0, nodes.capacity))
        """Reported less taken, never below zero; NaN where nobody reports."""
        self._bytes = np.zeros(0)
        """Memory of one instance, as the function's newest placement asked for."""
        self._total_bytes = np.zeros(nodes.capacity)

    def left(self, function: str, rows: IntArray) -> FloatArray:
        """Of one function on these rows; NaN where nobody reports."""
        slot = self._slots.get(function, -1)
        if slot < 0:
            return np.full(len(rows), np.nan)
        self._fit()
        left: FloatArray = self._left[slot][rows]
        return left

    def can_take(self, function: str, row: int) -> bool:
        """Whether an idle instance is in sight there."""
        slot = self._slots.get(function, -1)
        self._fit()
        return slot >= 0 and row != UNKNOWN and bool(self._left[slot, row] >= 1)

    def total_bytes(self, rows: IntArray) -> FloatArray:
        """Memory of all idle instances; NaN where a function has not been reported."""
        self._fit()
        return self._total_bytes[rows]

    def report(
        self,
        functions: Collection[str],
        counts: Mapping[str, Mapping[str, float]],
        nodes: Sequence[str],
        rows: IntArray,
        at_s: FloatArray,
    ) -> None:
        """What the runtimes of these nodes, on these rows, said at these times. Functions that `counts` does not name have none."""
        self._fit()
        self._add_slots([name for name in functions if name not in self._slots])
        place = {node: i for i, node in enumerate(nodes)}
        for name in functions:
            slot = self._slots[name]
            said = np.zeros(len(rows))
            for node, count in counts.get(name, {}).items():
                if (i := place.get(node, -1)) >= 0:
                    said[i] = count
            self._reported[slot, rows] = said
            self._reported_at_s[slot, rows] = at_s
            self._take_unseen(name, slot)
        self._total_bytes = self._bytes @ self._left

    def placed(self, function: str, uid: str, node: str, row: int, at_s: float, memory_bytes: float) -> None:
        """An instance is in use, or will be."""
        self._newest_bytes[function] = memory_bytes
        slot = self._slots.get(function, -1)
        if slot >= 0:
            self._fit()
            if self._bytes[slot] != memory_bytes:
                self._total_bytes += (memory_bytes - self._bytes[slot]) * self._left[slot]
                self._bytes[slot] = memory_bytes
        if row == UNKNOWN or (slot >= 0 and at_s <= self._reported_at_s[slot, row]):
            return  # nobody's, or the report has seen it
        self._placed.setdefault(function, {})[uid] = (node, at_s)
        if slot >= 0:
            self._take(slot, row, +1)

    def finished(self, function: str, uid: str) -> None:
        """The placement is over or withdrawn. A report that has seen it stays as it is."""
        placed = self._placed.get(function, {}).pop(uid, None)
        slot = self._slots.get(function, -1)
        if placed is None or slot < 0:
            return
        self._fit()
        row = self._nodes.row_of[placed[0]]
        if row != UNKNOWN and placed[1] > self._reported_at_s[slot, row]:
            self._take(slot, row, -1)

    def forget_row(self, row: int) -> None:
        """The row is a new node's, of which nobody has reported."""
        if self._slots:
            self._fit()
            self._reported[:, row] = self._reported_at_s[:, row] = self._left[:, row] = math.nan
            self._total_bytes[row] = math.nan
            self._taken[:, row] = 0

    def expire(self, oldest_s: float) -> IntArray:
        """Reports from before that time count as missing; the rows concerned."""
        self._fit()
        stale = self._reported_at_s < oldest_s
        rows = np.flatnonzero(stale.any(axis=0))
        if len(rows):
            self._reported[stale] = self._reported_at_s[stale] = self._left[stale] = math.nan
            self._total_bytes = self._bytes @ self._left
        return rows

    def _take(self, slot: int, row: int, sign: int) -> None:
        self._taken[slot, row] += sign
        self._left[slot, row] = np.maximum(self._reported[slot, row] - self._taken[slot, row], 0)  # NaN stays NaN
        self._total_bytes[row] = self._bytes @ self._left[:, row]

    def _take_unseen(self, name: str, slot: int) -> None:
        """Count the placements that the newest reports have not seen; forget the others."""
        unseen: dict[str, tuple[str, float]] = {}
        taken = self._taken[slot]
        taken[:] = 0
        for uid, (node, at_s) in self._placed.get(name, {}).items():
            row = self._nodes.row_of[node]
            if row != UNKNOWN and not at_s <= self._reported_at_s[slot, row]:
                unseen[uid] = (node, at_s)
                taken[row] += 1
        self._placed[name] = unseen
        np.maximum(self._reported[slot] - taken, 0, out=self._left[slot])

    def _add_slots(self, names: Sequence[str]) -> None:
        if not names:
            return
        self._slots |= {name: slot for slot, name in enumerate(names, len(self._slots))}
        nothing = np.full((len(names), self._nodes.capacity), math.nan)
        self._reported, self._reported_at_s = np.vstack([self._reported, nothing]), np.vstack([self._reported_at_s, nothing])
        self._left, self._taken = np.vstack([self._left, nothing]), np.vstack([self._taken, np.zeros_like(nothing)])
        self._bytes = np.append(self._bytes, [self._newest_bytes.get(name, 0.0) for name in names])

    def _fit(self) -> None:
        """As wide as the node table, which grows."""
        width = self._nodes.capacity
        if self._left.shape[1] == width:
            return
        for name, fill in (("_reported", math.nan), ("_reported_at_s", math.nan), ("_left", math.nan), ("_taken", 0.0)):
            setattr(self, name, np.ascontiguousarray(grown(getattr(self, name).T, width, fill).T))
        self._total_bytes = grown(self._total_bytes, width, math.nan if self._slots else 0.0)
