"""Books of idle instances: who is idle where follows from calls that were seen to end, and from calls that were placed since.

A reading says how many instances were idle when its node was sampled. Between two readings, and where nobody reads, the books say it:
a call that has ended leaves an instance of its function, a call that is placed takes the youngest one of its function, or starts a new
one, for which the oldest give way. Only nodes on which a call has ended, or of which a reading names instances, have a list at all.
`sim.kube.belief` plays the same books as arrays; a test holds the two together.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement.table import UNKNOWN, NodeTable, grown

LISTED = 64
"""Most idle instances that are listed of one node."""
CHANGES = 256
"""Changes of a node's list that are remembered, so that a reading can be compared with the list as it was when the node was sampled."""
_MOST_COLUMNS = 128
_COLUMN_BYTES = 2**20
"""Most bytes of all columns together, one byte a node."""
REMEMBERED_S = 120.0
"""No reading that takes longer is of use to anybody."""
_SINCE = attrgetter("since_s")
_NOWHERE: Mapping[int, float] = {}


class IdleInstance(NamedTuple):
    """One that can serve the next call of its function."""

    function: str
    since_s: float
    bytes: float


class _NodeList:
    """The idle instances of one node, in the order in which they became idle, and how the list has changed."""

    __slots__ = ("changes", "counts", "entries", "forgotten_s", "latest_s")

    def __init__(self) -> None:
        self.entries: list[IdleInstance] = []
        self.counts: dict[str, int] = {}
        self.changes: deque[tuple[float, str, int]] = deque()
        self.forgotten_s = -math.inf
        """Time of the latest change that is not remembered."""
        self.latest_s = -math.inf
        """Time of the latest change."""

    def note(self, function: str, by: int, at_s: float) -> None:
        """The list has changed, or a change of that time has not happened after all."""
        self.changes.append((at_s, function, by))
        if self.changes[0][0] < at_s - REMEMBERED_S or len(self.changes) > CHANGES:
            self.forget_until(at_s - REMEMBERED_S, most=CHANGES)
        if at_s > self.latest_s:
            self.latest_s = at_s
        left = self.counts.get(function, 0) + by
        if left:
            self.counts[function] = left
        else:
            self.counts.pop(function, None)

    def changed_since(self, at_s: float) -> dict[str, int]:
        """How many instances more, or fewer, each function has than at that time."""
        changed: dict[str, int] = {}
        if self.latest_s > at_s:
            for when_s, function, by in self.changes:
                if when_s > at_s:
                    changed[function] = changed.get(function, 0) + by
        return changed

    def forget_until(self, at_s: float, most: int) -> None:
        """Changes until then, and more than so many, need not be remembered."""
        while self.changes and (self.changes[0][0] <= at_s or len(self.changes) > most):
            self.forgotten_s = max(self.forgotten_s, self.changes.popleft()[0])


class _Take(NamedTuple):
    """What a reservation has struck off, in case it comes to nothing."""

    row: int
    of: _NodeList
    at_s: float
    struck: list[IdleInstance]


class Books:
    """Idle instances by node. Written to by `PlacementState` only."""

    def __init__(self, nodes: NodeTable, keep_alive_s: float) -> None:
        self._nodes, self._keep_alive_s = nodes, keep_alive_s
        self._lists: dict[int, _NodeList] = {}
        self._where: dict[str, dict[int, int]] = {}
        """function -> row -> listed instances."""
        self._newest_bytes: dict[str, float] = {}
        """Memory of one instance, as the function's newest placement asked for."""
        self._takes: dict[str, _Take] = {}
        """uid -> what a reservation has struck off."""
        self._idle_bytes = np.zeros(nodes.capacity)
        self._oldest_s = np.full(nodes.capacity, math.inf)
        self._read_s = np.full(nodes.capacity, -math.inf)
        self._nobody_before_s = math.inf
        """No instance is listed that has been idle for longer than since then."""
        self._columns: dict[str, BoolArray] = {}
        """Whether any is listed on each row, for the few functions that requests name."""

    def __len__(self) -> int:
        """How many instances are listed."""
        return sum(len(node.entries) for node in self._lists.values())

    # ---- what policies see -------------------------------------------------------------------------------------------

    def warm(self, function: str, rows: IntArray) -> BoolArray:
        """Whether an idle instance of the function is listed on each of these rows."""
        column = self._columns.get(function)
        if column is None or len(column) < self._nodes.capacity:
            if not (there := self._where.get(function)):
                return np.zeros(len(rows), np.bool_)
            self._columns.pop(function, None)
            if len(self._columns) >= max(min(_MOST_COLUMNS, _COLUMN_BYTES // self._nodes.capacity), 1):
                del self._columns[next(iter(self._columns))]
            column = self._columns[function] = np.zeros(self._nodes.capacity, np.bool_)
            column[list(there)] = True
        warm: BoolArray = column[rows]
        return warm

    def idle_bytes(self, rows: IntArray) -> FloatArray:
        """Memory of all listed instances."""
        self._fit()
        return self._idle_bytes[rows]

    def counts(self, row: int) -> Mapping[str, int]:
        """Listed instances of one node by function."""
        node = self._lists.get(row)
        return {} if node is None else node.counts

    def entries(self, row: int) -> Sequence[IdleInstance]:
        """Listed instances of one node, in the order in which they became idle."""
        node = self._lists.get(row)
        return () if node is None else node.entries

    # ---- what happens ------------------------------------------------------------------------------------------------

    def take(self, uid: str, function: str, row: int, bytes_: float, at_s: float, *, reserved: bool) -> bool:
        """A call is placed, and counts on its node: the youngest instance of its function serves it, or the oldest make room for a new
        one. Whether it starts cold is returned; what a reservation has taken comes back if it is withdrawn."""
        self._fit()
        self._newest_bytes[function] = bytes_
        node = self._lists.get(row)
        if row == UNKNOWN or node is None:
            return True
        self._expire(row, node, at_s)
        if at_s < self._read_s[row]:  # the reading has seen it
            return function not in node.counts
        struck: list[IdleInstance] = []
        cold = function not in node.counts
        if not cold:
            youngest = len(node.entries) - 1
            while node.entries[youngest].function != function:
                youngest -= 1
            struck.append(self._strike(row, node, youngest, at_s))
        else:
            room = self._nodes.memory_capacity[row] - self._nodes.memory_requested[row]
            while node.entries and self._idle_bytes[row] > room:
                struck.append(self._strike(row, node, 0, at_s))
        if reserved and struck:
            self._takes[uid] = _Take(row, node, at_s, struck)
        return cold

    def settled(self, uid: str) -> None:
        """A reservation has come true, or its pod is over."""
        self._takes.pop(uid, None)

    def undo(self, uid: str) -> None:
        """A reservation is withdrawn: what it took has been idle all along. A reading that came since has said so already."""
        taken = self._takes.pop(uid, None)
        if taken is None or self._lists.get(taken.row) is not taken.of or self._read_s[taken.row] >= taken.at_s:
            return
        for entry in taken.struck:
            if len(taken.of.entries) < LISTED:
                self._add(taken.row, taken.of, entry, taken.at_s)

    def give_back(self, function: str, row: int, bytes_: float, at_s: float) -> None:
        """A call has ended: its instance is idle from now on."""
        self._fit()
        if row == UNKNOWN or not self._keep_alive_s > 0:
            return
        node = self._lists.get(row)
        if node is None:
            node = self._lists[row] = _NodeList()
        if len(node.entries) == LISTED:
            self._strike(row, node, 0, at_s)
        self._add(row, node, IdleInstance(function, at_s, bytes_), at_s)

    def report(self, reported: Mapping[str, Mapping[int, float]], rows: IntArray, sampled_s: FloatArray) -> None:
        """Readings of these rows, by function and row, as of when each node was sampled; what is not named is not there. Only lists that
        say something else, or have changed since, are looked at: thousands of nodes are read at once, and few of them surprise."""
        self._fit()
        newer = sampled_s > self._read_s[rows]  # NaN, a time that nobody knows, is no reading
        at_s = dict(zip(rows[newer].tolist(), sampled_s[newer].tolist(), strict=True))
        doubtful = {row for row, node in self._lists.items() if node.latest_s > at_s.get(row, math.inf)}
        for function in reported.keys() | self._where.keys():
            said, listed = reported.get(function, _NOWHERE), self._where.get(function, _NOWHERE)
            if said != listed:
                doubtful.update(row for row, count in said.items() if listed.get(row) != count)
                doubtful.update(listed.keys() - said.keys())
        doubtful &= at_s.keys()
        counts: dict[int, dict[str, float]] = {row: {} for row in doubtful}
        for function, said in reported.items():
            for row in said.keys() & doubtful:
                counts[row][function] = said[row]
        self._read_s[[row for row in at_s if row not in doubtful]] = [seconds for row, seconds in at_s.items() if row not in doubtful]
        rank = {function: i for i, function in enumerate(reported)}
        for row in doubtful:
            self._correct(row, counts[row], at_s[row], rank)

    def expire(self, now_s: float) -> None:
        """Instances past the keep-alive are gone."""
        self._fit()
        if not now_s - self._nobody_before_s > self._keep_alive_s:
            return  # asked with every decision, and hardly ever with anything to do
        for row in np.flatnonzero(now_s - self._oldest_s > self._keep_alive_s).tolist():
            self._expire(row, self._lists[row], now_s)
        self._nobody_before_s = float(self._oldest_s.min())

    def forget(self, function: str) -> None:
        """Nothing is kept of the function any longer."""
        for row in list(self._where.get(function, ())):
            node = self._lists[row]
            for i in range(len(node.entries) - 1, -1, -1):
                if node.entries[i].function == function:
                    self._strike(row, node, i, -math.inf)
        self._newest_bytes.pop(function, None)
        self._columns.pop(function, None)

    def forget_row(self, row: int) -> None:
        """The node of this row is gone, or the row is a new node's."""
        self._fit()
        node = self._lists.pop(row, None)
        for function in node.counts if node is not None else ():
            self._unlist(function, row)
        self._idle_bytes[row], self._oldest_s[row], self._read_s[row] = 0.0, math.inf, -math.inf

    # ---- book-keeping ------------------------------------------------------------------------------------------------

    def _correct(self, row: int, counts: Mapping[str, float], sampled_s: float, rank: Mapping[str, int]) -> None:
        """Too many entries lose their oldest, too few gain older ones, after what has happened since the sample is taken back: an
        instance that became idle meanwhile would be counted twice, or not at all."""
        node = self._lists.get(row)
        if node is None:
            node = self._lists[row] = _NodeList()
        if sampled_s < node.forgotten_s:
            return  # nobody remembers what has happened since
        self._read_s[row] = sampled_s
        changed = node.changed_since(sampled_s)
        node.forget_until(sampled_s, most=CHANGES)  # older readings are of no use
        concerned = {**dict.fromkeys(counts), **dict.fromkeys(node.counts), **dict.fromkeys(changed)}
        for function in sorted(concerned, key=lambda name: rank.get(name, len(rank))):
            surplus = node.counts.get(function, 0) - changed.get(function, 0) - counts.get(function, 0.0)
            i = 0
            while surplus >= 1 and i < len(node.entries):
                if node.entries[i].function == function and node.entries[i].since_s <= sampled_s:
                    self._strike(row, node, i, sampled_s)
                    surplus -= 1
                else:
                    i += 1
            while surplus <= -1 and len(node.entries) < LISTED:
                oldest_s = min(sampled_s, node.entries[0].since_s) if node.entries else sampled_s
                self._add(row, node, IdleInstance(function, oldest_s, self._newest_bytes.get(function, 0.0)), sampled_s, first=True)
                surplus += 1

    def _expire(self, row: int, node: _NodeList, now_s: float) -> None:
        while node.entries and now_s - node.entries[0].since_s > self._keep_alive_s:
            self._strike(row, node, 0, now_s)

    def _strike(self, row: int, node: _NodeList, at: int, at_s: float) -> IdleInstance:
        entry = node.entries.pop(at)
        node.note(entry.function, -1, at_s)
        if entry.function in node.counts:
            self._where[entry.function][row] -= 1
        else:
            self._unlist(entry.function, row)
        self._sum_up(row, node, -entry.bytes)
        return entry

    def _add(self, row: int, node: _NodeList, entry: IdleInstance, at_s: float, *, first: bool = False) -> None:
        if first:
            node.entries.insert(0, entry)
        elif not node.entries or entry.since_s >= node.entries[-1].since_s:
            node.entries.append(entry)
        else:
            insort(node.entries, entry, key=_SINCE)
        node.note(entry.function, +1, at_s)
        there = self._where.setdefault(entry.function, {})
        there[row] = there.get(row, 0) + 1
        if (column := self._columns.get(entry.function)) is not None and row < len(column):
            column[row] = True
        self._sum_up(row, node, entry.bytes)

    def _unlist(self, function: str, row: int) -> None:
        there = self._where[function]
        del there[row]
        if (column := self._columns.get(function)) is not None and row < len(column):
            column[row] = False
        if not there:
            del self._where[function]

    def _sum_up(self, row: int, node: _NodeList, bytes_: float) -> None:
        self._idle_bytes[row] = self._idle_bytes[row] + bytes_ if node.entries else 0.0
        oldest_s = self._oldest_s[row] = node.entries[0].since_s if node.entries else math.inf
        self._nobody_before_s = min(self._nobody_before_s, oldest_s)

    def _fit(self) -> None:
        """Widen the columns to the node table, which grows."""
        width = self._nodes.capacity
        if len(self._read_s) < width:
            self._idle_bytes, self._oldest_s = grown(self._idle_bytes, width, 0.0), grown(self._oldest_s, width, math.inf)
            self._read_s = grown(self._read_s, width, -math.inf)
