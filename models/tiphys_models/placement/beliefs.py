"""What is believed of the cluster beyond what is scraped: who is idle where, what calls are like, how fast nodes are.

Kept by `PlacementState`, fed by nothing but what it is told anyway; shown to the policies that ask for it.
"""

from __future__ import annotations

import math

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.books import Books
from tiphys_models.placement.calls import CallTable
from tiphys_models.placement.experience import LearnedProfiles
from tiphys_models.placement.functions import Functions
from tiphys_models.placement.learned_profiles import saved_by_warmth
from tiphys_models.placement.placed import CallEnd, Placement
from tiphys_models.placement.table import UNKNOWN, NodeTable


class Beliefs:
    """Books and learned profiles, side by side."""

    def __init__(self, nodes: NodeTable, functions: Functions, calls: CallTable, keep_alive_s: float) -> None:
        self._nodes, self._functions, self._calls = nodes, functions, calls
        self.books = Books(nodes, keep_alive_s)
        self.learned = LearnedProfiles(functions.profiles)
        self._cores_version = -1
        self.former_nodes: dict[str, FloatArray] = {}
        """What a former process has learned of nodes that no watch has shown yet, by name."""

    def placed(self, placement: Placement, row: int, bytes_: float) -> bool:
        """A call counts on its node from now on; whether it starts cold."""
        reserved = math.isfinite(placement.expires_s)
        return self.books.take(placement.uid, placement.function, row, bytes_, placement.at_s, reserved=reserved)

    def ended(self, placement: Placement, now_s: float, end: CallEnd) -> None:
        """A call that was seen on its node has run to its end there."""
        row, function = self._nodes.row_of[placement.node], self._functions.get(placement.function)
        if row == UNKNOWN or function is None:
            return
        self.books.give_back(placement.function, row, placement.booked[1], now_s)
        start_s = placement.started_s - placement.at_s if math.isnan(end.start_s) else end.start_s
        start_s = max(start_s, 0.0)  # the API server's times have whole seconds
        run_s = now_s - placement.at_s - (0.0 if math.isnan(start_s) else start_s)
        if 0 <= run_s < math.inf:  # a clock that was set back says nothing about a run
            cold = self.was_cold(placement.uid) if end.cold is None else end.cold
            self.learned.ended(function.index, row, cold=cold, start_s=start_s, run_s=run_s, work_core_s=end.core_seconds)

    def cpu_unseen(self, function: str) -> bool:
        """Whether calls of a function were seen to end, their processor time was not, and nobody says what they are like."""
        known = self._functions.get(function)
        return known is not None and self.learned.is_known(known.index) and not self.learned.is_measured(known.index)

    def was_cold(self, uid: str) -> bool:
        """Whether no idle instance was listed when the call was placed."""
        return self._calls.was_cold(uid)

    def forget(self, function: str, row: int) -> None:
        """The function of that row was evicted."""
        self.books.forget(function)
        self.learned.forget(row)

    def forget_row(self, row: int) -> None:
        """The row is another node's, or nobody's."""
        self.books.forget_row(row)
        self.learned.forget_node(row)

    def came(self, node: str, row: int) -> None:
        """A node is new in this row."""
        self.forget_row(row)
        if (kept := self.former_nodes.pop(node, None)) is not None:
            self.learned.recall_node(row, kept)

    def shown(self, function: str, rows: IntArray, now_s: float) -> Believed:
        """Everything for one decision."""
        self.books.expire(now_s)
        known = self._functions.get(function)
        own = -1 if known is None else known.index
        learned = self.learned
        open_row, open_at_s, open_function, open_cold = self._calls.placed()
        alone_start_s, alone_run_s = learned.alone_s()
        return Believed(
            now_s=now_s,
            node_cores=self._nodes.cores_at_least,
            speed=learned.speeds,
            warm=self.books.warm(function, rows),
            idle_bytes=self.books.idle_bytes(rows),
            idle_value_s=lambda asked: self._idle_value_s(rows, asked),
            profile=learned.believed_of(own),
            known=learned.is_known(own),
            measured=learned.is_measured(own),
            own_function=own,
            profiles=learned.believed(),
            cores_used=learned.cores_used(),
            alone_start_s=alone_start_s,
            alone_run_s=alone_run_s,
            least_share=learned.least_share_left(),
            threads=self._threads,
            open_row=open_row,
            open_at_s=open_at_s,
            open_function=open_function,
            open_cold=open_cold,
        )

    def _threads(self) -> FloatArray:
        used = self.learned.cores_used()
        changed = self._cores_version != self.learned.cores_version
        self._cores_version = self.learned.cores_version
        return self._calls.threads(used, self._nodes.capacity, changed=changed)

    def _idle_value_s(self, rows: IntArray, asked: BoolArray) -> FloatArray:
        saved: dict[str, float] = {}
        value = np.zeros(len(rows))
        for i in np.flatnonzero(asked).tolist():
            for name, count in self.books.counts(int(rows[i])).items():
                if name not in saved:
                    known = self._functions.get(name)
                    saved[name] = saved_by_warmth(self.learned.believed_of(-1 if known is None else known.index))
                value[i] += count * saved[name]
        return value
