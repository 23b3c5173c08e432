"""GOBI: gradient descent on the input of a trained surrogate of energy and response (0.8 and 0.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.board import HOST_INPUTS, SCHEMA, TASK_INPUTS, Board
from tiphys_models.selection.planners.descent import SCHEDULE, DescentSchedule, Surrogate, descend, gradient_scale
from tiphys_models.selection.planners.layers import host_network
from tiphys_models.selection.planners.local_search import best_of
from tiphys_models.selection.planners.surrogate import outcome_weights, proposals, reference, seeds

OBJECTIVE = Weights(cost=0.0, energy=0.8, response=0.2, violation=0.0)
"""Weights of the objective, the same as in COSCO."""
HIDDEN = (64, 64, 32)
OUTPUTS = ("energy", "response")


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the artifact's tensors."""
    widths = (len(HOST_INPUTS) + len(TASK_INPUTS), *HIDDEN, len(OUTPUTS))
    w = {f"w{i}": (widths[i], widths[i + 1]) for i in range(4)}
    return {**w, **{f"b{i}": (widths[i + 1],) for i in range(4)}}


@dataclass(frozen=True, slots=True)
class Gobi:
    """The planner GOBI; the module says how it works."""

    weights: Mapping[str, FloatArray]
    name: str = "gobi"
    schedule: DescentSchedule = SCHEDULE

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """See `Planner`. The surrogate proposes; what is proposed is finished and judged by the objective that it stands for."""
        if not len(tasks):
            return Plan(np.empty(0, np.int64))
        starts = seeds(state, tasks, OBJECTIVE)
        _, energy, response = outcome_weights(reference(state, tasks), OBJECTIVE)
        worth = np.array([energy, response])

        def propose(board: Board, start: IntArray) -> list[IntArray]:
            return descend(surrogate(board, self.weights, worth), start, board.allowed, gradient_scale, self.schedule)

        return best_of(state, tasks, [*starts, *proposals(state, tasks, starts, propose)], OBJECTIVE)


def surrogate(board: Board, weights: Mapping[str, FloatArray], worth: FloatArray) -> Surrogate:
    """E of the batch as the network sees it, with its gradient."""

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        out, pull = host_network(np.concatenate([board.host_inputs, x.T @ board.task_inputs], axis=1), weights)
        d_input = pull(np.broadcast_to(worth, out.shape))
        return float((out @ worth).sum()), board.task_inputs @ d_input[:, len(HOST_INPUTS) :].T

    return value


def load(parts: Parts) -> Gobi:
    """The planner made of a checked artifact."""
    return Gobi(check_tensors(parts, SCHEMA, shapes()).arrays)


def make(card: Path = SHIPPED / "gobi.json") -> Gobi:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))
