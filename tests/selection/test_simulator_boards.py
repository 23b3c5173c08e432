"""Training data of surrogates against the cloud itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.selection.cloud.hosts import PAPER_FLEET
from tiphys_models.selection.cloud.state import UNPLACED, Plan
from tiphys_models.selection.planners.board import BATCH, make_board
from tiphys_models.selection.planners.heuristics import CostLean
from tiphys_models.selection.planners.semi_direct import INPUTS, WINDOW, host_series
from tiphys_models.selection.planners.surrogate import COST_UNIT_USD, ENERGY_UNIT_J, RESPONSE_UNIT_S
from tiphys_models.selection.sim.boards import decided, follow
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.forecasts import busy_hosts
from tiphys_models.selection.sim.scenario import CloudScenario
from tiphys_models.selection.sim.workloads import make_workload

AT_ONCE = CloudScenario(kinds=tuple((replace(kind, latency_s=0.0), count) for kind, count in PAPER_FLEET))
"""Without latency both sides start tasks at the same moment."""


def test_what_follows_a_decision_is_what_the_cloud_does() -> None:
    cloud = Cloud(make_workload("regime", "validation", 3, 60), AT_ONCE)
    rng, compared = np.random.default_rng(0), 0
    while cloud.interval < 60:
        state, tasks = cloud.state(), cloud.tasks()
        if 0 < len(tasks) <= BATCH:
            board = make_board(state, tasks, np.arange(len(tasks)), np.full(len(tasks), UNPLACED))
            columns = rng.integers(0, len(board.hosts), len(tasks))
            found = follow(cloud, board, np.arange(len(tasks)), columns)
            nothing = cloud.clone()
            nothing.waiting = nothing.waiting[:0]
            added = cloud.drained(Plan(board.hosts_of(columns)), 0.0) - nothing.drained(Plan(nothing.waiting), 0.0)
            total = found.per_host.sum(axis=0)
            age_s = float(tasks.age_s.sum())
            assert total[0] * COST_UNIT_USD == pytest.approx(added.usd, abs=1e-9)
            assert total[1] * ENERGY_UNIT_J == pytest.approx(added.joules, abs=1e-4)
            assert (total[2] + total[3]) * RESPONSE_UNIT_S + age_s == pytest.approx(added.response_s, abs=1e-6)
            assert found.per_task.sum() == pytest.approx(total[3])
            compared += 1
        if len(tasks):
            cloud.place(CostLean().assign(state, tasks, 0), 0.0)
        cloud.advance()
    assert compared > 20


def test_decisions_are_deterministic_and_differ_between_seeds() -> None:
    first, again, other = (list(decided("stationary", "train", seed, 10)) for seed in (0, 0, 1))
    assert [d.columns.tolist() for d in first] == [d.columns.tolist() for d in again]
    assert [d.columns.tolist() for d in first] != [d.columns.tolist() for d in other]
    assert all(d.board.allowed[np.arange(len(d.columns)), d.columns].all() for d in first)


def test_forecasters_learn_what_hosts_use_without_new_tasks() -> None:
    inputs, answers = busy_hosts("regime", "train", [0, 1], 100, host_series)
    assert inputs.shape == (len(answers), INPUTS)
    assert ((answers > 0) & (answers <= 1 + 1e-9)).all()  # busy hosts work
    wanted = np.minimum(inputs[:, WINDOW], 1.0)
    assert (answers <= wanted + 1e-9).all()  # never more than their present tasks' threads
