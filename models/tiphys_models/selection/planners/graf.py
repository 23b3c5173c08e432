"""GRAF: gradient descent on the decision that weights the edges of a graph network; half cost, half latency."""

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
from tiphys_models.selection.planners.descent import Surrogate, softmax_descend
from tiphys_models.selection.planners.graph import ROUNDS, graph_network
from tiphys_models.selection.planners.local_search import best_of
from tiphys_models.selection.planners.surrogate import outcome_weights, proposals, reference, seeds

OBJECTIVE = Weights(cost=0.5, energy=0.0, response=0.5, violation=0.0)
WIDTH = 32


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the artifact's tensors."""
    found: dict[str, tuple[int, ...]] = {
        "host_in": (len(HOST_INPUTS), WIDTH), "host_in_b": (WIDTH,), "task_in": (len(TASK_INPUTS), WIDTH), "task_in_b": (WIDTH,),
        "host_out": (WIDTH, 2), "task_out": (WIDTH, 1),
    }  # fmt: skip
    for k in range(ROUNDS):
        found |= {f"{part}{k}": (WIDTH, WIDTH) for part in ("hh", "ht", "tt", "th")} | {f"{part}{k}": (WIDTH,) for part in ("h_b", "t_b")}
    return found


@dataclass(frozen=True, slots=True)
class Graf:
    """The planner GRAF; the module says how it works."""

    weights: Mapping[str, FloatArray]
    name: str = "graf"
    steps: int = 50

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """See `Planner`. The surrogate proposes; what is proposed is finished and judged by the objective that it stands for."""
        if not len(tasks):
            return Plan(np.empty(0, np.int64))
        starts = seeds(state, tasks, OBJECTIVE)
        cost, _, response = outcome_weights(reference(state, tasks), OBJECTIVE)
        worth = np.array([cost, response])

        def propose(board: Board, start: IntArray) -> list[IntArray]:
            return [softmax_descend(surrogate(board, self.weights, worth), start, board.allowed, self.steps)]

        return best_of(state, tasks, [*starts, *proposals(state, tasks, starts, propose)], OBJECTIVE)


def surrogate(board: Board, weights: Mapping[str, FloatArray], worth: FloatArray) -> Surrogate:
    """E of the batch as the network sees it, with its gradient."""

    def value(p: FloatArray) -> tuple[float, FloatArray]:
        out, pull = graph_network(p, board.host_inputs, board.task_inputs, weights)
        return float(out @ worth), pull(worth)

    return value


def load(parts: Parts) -> Graf:
    """The planner made of a checked artifact."""
    return Graf(check_tensors(parts, SCHEMA, shapes()).arrays)


def make(card: Path = SHIPPED / "graf.json") -> Graf:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))
