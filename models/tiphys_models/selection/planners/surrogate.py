"""Whole plans from a surrogate: batches of a board, seeds, descent from each, and the judgement of what the descents propose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.score import Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.board import BATCH, Board, make_board
from tiphys_models.selection.planners.greedy import greedy, previous_plan

ENERGY_UNIT_J, RESPONSE_UNIT_S, COST_UNIT_USD = 1000.0, 10.0, 1e-4
"""Units of the networks' outputs: about one small host for one interval."""

Propose = Callable[[Board, IntArray], list[IntArray]]
"""(board, columns to start from) -> columns, best first."""


def reference(state: CloudState, tasks: Tasks) -> Outcome:
    """What E is divided by."""
    return Draft(state, tasks, Weights()).reference


def seeds(state: CloudState, tasks: Tasks, weights: Weights) -> list[Plan]:
    """Greedy, then the previous plan."""
    return [greedy(state, tasks, weights), previous_plan(state, tasks)]


def proposals(state: CloudState, tasks: Tasks, starts: list[Plan], propose: Propose) -> list[Plan]:
    """Plans that the descents from every start end with: the first combines every batch's best, the next their second best, .."""
    found: list[Plan] = []
    for start in starts:
        host = start.host.copy()
        runners_up: list[Plan] = []
        for rows in batches(len(tasks)):
            board = make_board(state, tasks, rows, host)
            columns = propose(board, board.columns_of(host[rows]))
            for other in columns[1:]:
                variant = host.copy()
                variant[rows] = board.hosts_of(other)
                runners_up.append(Plan(variant))
            host[rows] = board.hosts_of(columns[0])
        found.append(Plan(host))
        if len(tasks) <= BATCH:  # a runner-up is a whole plan only where there is one batch
            found += runners_up
    return found


def batches(count: int) -> list[IntArray]:
    """Rows of each batch, in order."""
    return [np.arange(at, min(at + BATCH, count)) for at in range(0, count, BATCH)]


def outcome_weights(ref: Outcome, weights: Weights) -> tuple[float, float, float]:
    """What one unit of a network's (cost, energy, response) output adds to E."""
    return (
        weights.cost * COST_UNIT_USD / max(ref.usd, 1e-12),
        weights.energy * ENERGY_UNIT_J / max(ref.joules, 1e-12),
        weights.response * RESPONSE_UNIT_S / max(ref.response_s, 1e-12),
    )
