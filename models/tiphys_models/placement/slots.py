"""A published plan as a placement policy: nodes with a free slot first, in the plan's order.

A slot is taken by an unfinished pod of the function that is bound to the node or reserved on it. Nothing else is counted, so that two
replicas that see the same plan and the same pods give the same scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.state import PlacementState
from tiphys_models.placement.table import UNKNOWN


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """Slots by function and node; nodes in order of preference."""

    policy_uid: str
    policy_generation: int
    planner: str
    interval: int
    valid_until_s: float
    """Seconds since the epoch."""
    slots: Mapping[str, Mapping[str, int]]


class PlanPolicy:
    """Scores by one plan. Not kept between calls: what is free changes with every pod of the function, on any node."""

    epsilon = 1e-9
    row_wise = False
    digest = ""

    def __init__(self, plan: SlotPlan, state: PlacementState) -> None:
        self._plan, self._state = plan, state

    @property
    def name(self) -> str:
        """Name of the planner that made the plan."""
        return self._plan.planner

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Scores from 1 down by rank for candidates with a free slot, 0 for all others; all 0 if the plan has no room left here."""
        scores = np.zeros(len(view.rows))
        planned = self._plan.slots.get(view.request.function, {})
        if not planned:
            return scores
        taken = self._state.unfinished(view.request.function)
        position = {int(row): at for at, row in enumerate(view.rows)}
        for rank, (node, slots) in enumerate(planned.items()):
            row = self._state.nodes.row_of[node]
            if row != UNKNOWN and row in position and slots > taken.get(node, 0):
                scores[position[row]] = 1.0 - rank / len(planned)
        return scores
