"""GOSH: second-order descent on the input of a surrogate that knows how sure it is; energy, with caution.

The surrogate is a natural-parameter network: mean and variance of what a host's new tasks will add. Demands are only expected, so
that a tightly packed host has a wide distribution. The objective is mean + kappa x standard deviation; kappa < 0 would explore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.board import HOST_INPUTS, SCHEMA, TASK_INPUTS, Board, make_board
from tiphys_models.selection.planners.descent import SCHEDULE, DescentSchedule, Surrogate, descend, hessian_scale, one_hot
from tiphys_models.selection.planners.layers import Pair, PullPair, natural_network, natural_shapes
from tiphys_models.selection.planners.local_search import distinct, polish
from tiphys_models.selection.planners.surrogate import batches, proposals, seeds

OBJECTIVE = Weights(cost=0.0, energy=0.8, response=0.0, violation=0.2)
"""Weights of the mean objective: energy, and deadlines as what one can be unsure of."""
ENERGY_PER_UNIT_J = 1300.0
"""The reference of a mean task of the mix: the one head learns 0.8 energy in this unit + 0.2 violations."""
KAPPA = 0.5
HIDDEN = (32, 32, 16)


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the artifact's tensors."""
    return natural_shapes((len(HOST_INPUTS) + len(TASK_INPUTS), *HIDDEN, 1))


@dataclass(frozen=True, slots=True)
class Gosh:
    """The planner GOSH; the module says how it works."""

    weights: Mapping[str, FloatArray]
    kappa: float = KAPPA
    name: str = "gosh"
    schedule: DescentSchedule = SCHEDULE

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """See `Planner`. Means of finished proposals come from the outlook, uncertainty from the network."""
        if not len(tasks):
            return Plan(np.empty(0, np.int64))
        rng = np.random.default_rng(seed)
        starts = seeds(state, tasks, OBJECTIVE)

        def propose(board: Board, start: IntArray) -> list[IntArray]:
            value = surrogate(board, self.weights, self.kappa)
            return descend(value, start, board.allowed, hessian_scale(value, rng), self.schedule)

        plans = distinct([*starts, *proposals(state, tasks, starts, propose)])
        finished = distinct([*plans, *(polish(state, tasks, plan, OBJECTIVE)[0] for plan in plans)])
        judged = [polish(state, tasks, plan, OBJECTIVE, rounds=0) for plan in finished]
        first = first_board(state, tasks)
        return min(judged, key=lambda f: f[1] + self.kappa * self.deviation(state, tasks, f[0], first) / len(tasks))[0]

    def deviation(self, state: CloudState, tasks: Tasks, plan: Plan, first: Board) -> float:
        """Standard deviation of a plan's value, in units of one task's reference; `first`: `first_board`, made once for all plans."""
        variance = 0.0
        before = np.full(len(tasks), UNPLACED, np.int64)
        for index, rows in enumerate(batches(len(tasks))):
            board = make_board(state, tasks, rows, before) if index else first
            columns = board.columns_of(plan.host[rows])
            (_, v), _ = _network(board, one_hot(columns, len(board.hosts)), self.weights)
            used = np.unique(columns)
            variance += float(v[used].sum())
            before[rows] = plan.host[rows]
        return float(np.sqrt(variance))


def first_board(state: CloudState, tasks: Tasks) -> Board:
    """Before any waiting task has a host."""
    return make_board(state, tasks, batches(len(tasks))[0], np.full(len(tasks), UNPLACED, np.int64))


def surrogate(board: Board, weights: Mapping[str, FloatArray], kappa: float) -> Surrogate:
    """Mean + kappa x standard deviation of the batch: means and variances of hosts add up."""

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        (m, v), pull = _network(board, x, weights)
        deviation = np.sqrt(v.sum())
        d_input = pull(np.ones_like(m), np.full_like(v, kappa / (2 * deviation)))[0]
        return float(m.sum() + kappa * deviation), board.task_inputs @ d_input[:, len(HOST_INPUTS) :].T

    return value


def _network(board: Board, x: FloatArray, weights: Mapping[str, FloatArray]) -> tuple[Pair, PullPair]:
    inputs = np.concatenate([board.host_inputs, x.T @ board.task_inputs], axis=1)
    return natural_network(inputs, weights, len(HIDDEN) + 1)


def load(parts: Parts) -> Gosh:
    """The planner made of a checked artifact."""
    return Gosh(check_tensors(parts, SCHEMA, shapes()).arrays)


def make(card: Path = SHIPPED / "gosh.json") -> Gosh:
    """The planner with the shipped weights, or with those of another card."""
    return load(read_parts(card))
