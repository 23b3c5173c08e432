"""What decisions on boards really led to: the training data of surrogates, from generated workloads of the train split.

Every moment of an episode is decided in several ways, good and bad, and each is followed to completion with the true works. A
surrogate thereby learns the expectation over works, where an outlook at expected works sees only one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.random import stream
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.outlook import expected_outcome, finish_times
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.board import BATCH, Board, make_board
from tiphys_models.selection.planners.descent import one_hot
from tiphys_models.selection.planners.greedy import greedy
from tiphys_models.selection.planners.registry import make_planner
from tiphys_models.selection.planners.surrogate import COST_UNIT_USD, ENERGY_UNIT_J, RESPONSE_UNIT_S
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.workloads import make_workload

_BEHAVIOUR = ("cost-lean", "energy-lean", "one-per-host", "random-host")
_DECISIONS = 6
"""Ways in which every moment is decided."""
OUTCOMES = 5
"""USD, energy, slowdown of what the host already runs, responses of its new tasks; in units of `planners.surrogate`. Violations."""


@dataclass(frozen=True, slots=True)
class DecidedBoard:
    """A board, a column for each of its tasks, and what came of it."""

    board: Board
    columns: IntArray
    chances: FloatArray
    """Tasks x columns: from which `columns` was drawn; one-hot for half of the decisions.

    Learned on chances, a surrogate is the expectation over draws, and its gradient at a decision is what moving a task changes. Learned on
    decisions alone, its slope at a task's host is that of a second such task, which costs less than the first: it would never leave.
    """
    per_host: FloatArray
    """columns x OUTCOMES: what the new tasks added."""
    per_task: FloatArray
    """Seconds from now to each task's end, in the response's unit."""


def decided(workload: str, split: str, seed: int, intervals: int) -> Iterator[DecidedBoard]:
    """All decisions of one episode; behaviours change at random, so that states of every kind are met."""
    rng = stream("boards", split, workload, seed)
    cloud = Cloud(make_workload(workload, split, seed, intervals))
    planners = [make_planner(name) for name in _BEHAVIOUR]
    while not (cloud.over and cloud.interval >= intervals):
        if len(cloud.waiting):
            state, tasks = cloud.state(), cloud.tasks()
            yield from _decisions(cloud, state, tasks, rng)
            planner = planners[int(rng.integers(len(planners)))]
            plan = repair(state, tasks, planner.assign(state, tasks, int(rng.integers(2**32))))
            cloud.place(plan, scheduling_s(planner.name, len(tasks)))
        cloud.advance()


def _decisions(cloud: Cloud, state: CloudState, tasks: Tasks, rng: np.random.Generator) -> Iterator[DecidedBoard]:
    rows = np.sort(rng.choice(len(tasks), min(len(tasks), BATCH), replace=False))
    board = make_board(state, tasks, rows, np.full(len(tasks), UNPLACED, np.int64))
    if not board.allowed.any(axis=1).all():
        return
    mine = tasks.take(rows)
    for kind in range(_DECISIONS):
        one, other = (_decision(state, mine, board, near=bool(rng.integers(2)), rng=rng) for _ in range(2))
        share = rng.uniform(0.5, 1.0, len(rows)) if kind % 2 else np.ones(len(rows))
        width = len(board.hosts)
        chances = share[:, None] * one_hot(one, width) + (1 - share)[:, None] * one_hot(other, width)
        columns = np.where(rng.uniform(size=len(rows)) < share, one, other)
        yield follow(cloud, board, rows, np.asarray(columns, np.int64), chances)


def _decision(state: CloudState, mine: Tasks, board: Board, *, near: bool, rng: np.random.Generator) -> IntArray:
    count = len(mine)
    if near:  # to a good plan
        columns = board.columns_of(greedy(state, mine, Weights(*rng.dirichlet((0.5, 0.5, 0.5, 0.5)))).host)
        return np.asarray(np.where(rng.uniform(size=count) < rng.uniform(0, 0.7), _anywhere(board, rng), columns), np.int64)
    few = rng.choice(len(board.hosts), int(rng.integers(1, count + 1)))
    columns = few[rng.integers(0, len(few), count)]
    return np.asarray(np.where(board.allowed[np.arange(count), columns], columns, _anywhere(board, rng)), np.int64)


def _anywhere(board: Board, rng: np.random.Generator) -> IntArray:
    return np.asarray((rng.uniform(size=board.allowed.shape) * board.allowed).argmax(axis=1), np.int64)


def follow(cloud: Cloud, board: Board, rows: IntArray, columns: IntArray, chances: FloatArray | None = None) -> DecidedBoard:
    """What a decision leads to with true works, host by host: processor sharing is exact in closed form, and hosts are independent."""
    machines, dt = cloud.machines, cloud.workload.interval_s
    per_host, per_task = np.zeros((len(board.hosts), OUTCOMES)), np.zeros(len(rows))
    for column in np.unique(columns).tolist():
        host, mine = int(board.hosts[column]), np.flatnonzero(columns == column)
        kind = machines.fleet.types[int(machines.fleet.type_of[host])]
        present = cloud.running[cloud.host[cloud.running] == host]
        everyone = np.concatenate([present, cloud.waiting[rows[mine]]])
        works = cloud.remaining[everyone].tolist()
        ages = (cloud.time_s - cloud.workload.created_s[everyone]).tolist()
        deadlines = cloud.workload.deadline_s[everyone].tolist()
        start_s, n = float(machines.latency_s[host]), len(present)
        alone = expected_outcome(kind, works[:n], ages[:n], deadlines[:n], dt, start_s)
        together = expected_outcome(kind, works, ages, deadlines, dt, start_s)
        ends = finish_times(kind.cores, works, dt, start_s)[0][n:]
        per_task[mine] = np.array(ends) / RESPONSE_UNIT_S
        added = together - alone
        slower = added.response_s - sum(ages[n:]) - sum(ends)
        per_host[column] = (
            added.usd / COST_UNIT_USD, added.joules / ENERGY_UNIT_J, slower / RESPONSE_UNIT_S, sum(ends) / RESPONSE_UNIT_S,
            added.violations,
        )  # fmt: skip
    return DecidedBoard(board, columns, one_hot(columns, len(board.hosts)) if chances is None else chances, per_host, per_task)
