"""How long pods of each application live, as the cluster shows it, and when each node may be empty.

Nothing is kept before a policy asks. From then on ends of pods are learned as they are seen; all pods that run are looked at every two
minutes, and a node whenever a pod comes or goes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.placement import lifetimes
from tiphys_models.placement.lifetimes import BINS, POINTS
from tiphys_models.placement.placed import Placement
from tiphys_models.placement.table import UNKNOWN, NodeTable, grown

REFRESH_S = 120.0
_POOL = 0


class LivesKept(NamedTuple):
    """Histograms of lifetimes as one process leaves them to the next; the first row is that of all applications together."""

    names: tuple[str, ...]
    ends: FloatArray
    at_risk: FloatArray
    counted_s: float
    """When pods that ran were last counted; -inf: never."""


class NodeLives:
    """Histograms of lifetimes by application, bounded in number, and of every node the chance that it is empty at later times."""

    def __init__(self, nodes: NodeTable, on_node: Mapping[str, Mapping[str, Placement]], most_applications: int) -> None:
        """`on_node` has the placements of each node by uid; it is the owner's, and is only read."""
        self._nodes, self._on_node, self._most = nodes, on_node, most_applications
        self._row_of: OrderedDict[str, int] = OrderedDict()  # least recently learned first
        self._ends = np.zeros((8, BINS))
        self._at_risk = np.zeros((8, BINS))
        self._survival: FloatArray = np.ones((8, BINS + 1))
        self._empty, self._free = np.ones((0, POINTS)), np.ones((0, POINTS))
        self._stale = np.ones(0, np.bool_)
        self._refreshed_s = -math.inf
        self._former_s = -math.inf
        """When a former process last counted the pods that ran."""
        self.asked = False
        self.evicted = 0
        """How many applications were let go because there were too many."""

    def __len__(self) -> int:
        return len(self._row_of)

    # ---- what is seen --------------------------------------------------------------------------------------------

    def came(self, placement: Placement) -> None:
        """A pod was placed."""
        if placement.at_s < self._former_s:  # the bins that it had passed then have been counted
            placement.passed = int(lifetimes.bins_of(np.array([self._former_s - placement.at_s]))[0])
        if self.asked:
            self._look_again(placement.node)

    def left(self, placement: Placement, now_s: float, *, ran: bool) -> None:
        """A pod is there no longer; whether it ran, or only its reservation is withdrawn."""
        if not self.asked:
            return
        self._look_again(placement.node)
        life_s = now_s - placement.at_s
        if not (ran and placement.in_flight and 0 <= life_s < math.inf):  # a clock that was set back says nothing about a life
            return
        row, ended = self._learning(placement.function), int(lifetimes.bins_of(np.array([life_s]))[0])
        for a in (_POOL, row):
            self._at_risk[a, placement.passed : ended + 1] += 1.0
            if ended < BINS:
                self._ends[a, ended] += 1.0

    def renewed(self, name: str) -> None:
        """A node is new, perhaps in the row of one that has gone."""
        if self.asked:
            self._look_again(name)

    def due(self, now_s: float) -> bool:
        """Whether all pods should be looked at again."""
        return self.asked and now_s >= self._refreshed_s + REFRESH_S

    def refresh(self, now_s: float) -> None:
        """Count pods that still run, let old observations fade, and put together what is known of lifetimes."""
        if self._refreshed_s > -math.inf:
            kept = lifetimes.kept_share(now_s - self._refreshed_s)
            self._ends *= kept
            self._at_risk *= kept
        self._refreshed_s = now_s
        running = [p for there in self._on_node.values() for p in there.values() if p.in_flight and p.at_s <= now_s]
        reached = lifetimes.bins_of(np.array([now_s - p.at_s for p in running], np.float64)).tolist()
        for placement, bins in zip(running, reached, strict=True):
            if bins > placement.passed:
                row = self._learning(placement.function)
                for a in (_POOL, row):
                    self._at_risk[a, placement.passed : bins] += 1.0
                placement.passed = bins
        self._survival = lifetimes.survivals(lifetimes.hazards(self._ends, self._at_risk))
        self._stale[:] = True

    # ---- what is kept for the next process ------------------------------------------------------------------------

    def kept(self) -> LivesKept:
        """Copies of all histograms, least recently learned first; none before a policy has asked."""
        names = tuple(self._row_of) if self._refreshed_s > -math.inf else ()
        rows = [_POOL, *(self._row_of[name] for name in names)]
        return LivesKept(names, self._ends[rows], self._at_risk[rows], self._refreshed_s)

    def recall(self, kept: LivesKept) -> None:
        """Go on from what a former process kept, if nothing was learned here; old observations fade when somebody first asks."""
        if self._refreshed_s > -math.inf or self._row_of:
            return
        for name, ends, at_risk in zip(kept.names, kept.ends[1:], kept.at_risk[1:], strict=True):
            row = self._learning(name)
            self._ends[row], self._at_risk[row] = ends, at_risk
        self._ends[_POOL], self._at_risk[_POOL] = kept.ends[0], kept.at_risk[0]
        self._refreshed_s = self._former_s = kept.counted_s

    # ---- what policies ask ---------------------------------------------------------------------------------------

    def gone(self, application: str, now_s: float) -> FloatArray:
        """Chance that a pod of the application that starts now has ended by each time ahead."""
        if not self.asked or now_s >= self._refreshed_s + 2 * REFRESH_S:  # nobody calls `refresh` in time
            self.asked = True
            self.refresh(now_s)
        found: FloatArray = lifetimes.chances_gone(self._survival, np.array([self._known(application)]), np.zeros(1))[0]
        return found

    def empty(self, rows: IntArray, now_s: float) -> FloatArray:
        """Chance that each of these nodes is empty at each time ahead, if nothing more comes, [nodes, times]."""
        self._look(rows, now_s)
        return self._empty[rows]

    def free(self, rows: IntArray, now_s: float) -> FloatArray:
        """The same of pods that nobody may evict: chance that none of them is left, so that an autoscaler may empty the node."""
        self._look(rows, now_s)
        return self._free[rows]

    def _look(self, rows: IntArray, now_s: float) -> None:
        if len(self._empty) < self._nodes.capacity:
            self._empty = grown(self._empty, self._nodes.capacity, 1.0)
            self._free = grown(self._free, self._nodes.capacity, 1.0)
            self._stale = grown(self._stale, self._nodes.capacity, 1.0)
        for row in rows[self._stale[rows]].tolist():
            there = [p for p in self._on_node.get(self._nodes.names[row], {}).values() if p.in_flight]
            self._empty[row] = self._emptying(there, now_s)
            self._free[row] = self._emptying([p for p in there if p.protected], now_s)
            self._stale[row] = False

    def _emptying(self, there: Sequence[Placement], now_s: float) -> FloatArray:
        applications = np.array([self._known(p.function) for p in there], np.int64)
        ages_s = np.array([max(now_s - p.at_s, 0.0) for p in there], np.float64)
        return lifetimes.chance_empty(lifetimes.chances_gone(self._survival, applications, ages_s))

    # ---- book-keeping --------------------------------------------------------------------------------------------

    def _look_again(self, name: str) -> None:
        row = self._nodes.row_of[name]
        if row != UNKNOWN and row < len(self._stale):
            self._stale[row] = True

    def _known(self, application: str) -> int:
        """Its row; the pool's for one that nothing was put together of."""
        row = self._row_of.get(application, _POOL)
        return row if row < len(self._survival) else _POOL

    def _learning(self, application: str) -> int:
        row = self._row_of.get(application)
        if row is None:
            row = self._free_row()
            self._row_of[application] = row
        self._row_of.move_to_end(application)
        return row

    def _free_row(self) -> int:
        if len(self._row_of) >= self._most:
            _, row = self._row_of.popitem(last=False)
            self._ends[row] = self._at_risk[row] = 0.0
            if row < len(self._survival):
                self._survival[row] = self._survival[_POOL]
            self.evicted += 1
            return row
        row = len(self._row_of) + 1
        if row >= len(self._ends):
            self._ends = grown(self._ends, 2 * len(self._ends), 0.0)
            self._at_risk = grown(self._at_risk, 2 * len(self._at_risk), 0.0)
        return row
