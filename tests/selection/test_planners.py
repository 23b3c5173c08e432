from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.draft import objective
from tiphys_models.selection.cloud.hosts import make_fleet
from tiphys_models.selection.cloud.repair import infeasible
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.greedy import previous_plan
from tiphys_models.selection.planners.heuristics import CostLean, EnergyLean, FirstFit, OnePerHost, RandomHost
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import COMPARATORS, FORECASTERS, HEURISTICS, candidates, make_planner

ALL = (*HEURISTICS, *COMPARATORS)
MOMENTS: tuple[tuple[CloudState, Tasks], ...] = (
    (state(), tasks(0)),
    (state([(0, 0), (2, 1), (3, 4)]), tasks(1, 2, 5)),
    (state([(0, 0), (0, 0), (2, 5)], fleet=make_fleet()), tasks(*[i % 7 for i in range(12)])),
    (state([(2, h) for h in range(6)]), tasks(*[i % 7 for i in range(9)])),  # crowded: more tasks than cores for them
)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("count", [0, 1, 100])
def test_every_planner_places_any_number_of_tasks_where_they_fit(name: str, count: int) -> None:
    now, waiting = state([(0, 3)], fleet=make_fleet()), tasks(*[i % 7 for i in range(count)])
    plan = make_planner(name).assign(now, waiting, now.digest(waiting))
    assert len(plan) == count
    assert (plan.host >= 0).all()
    assert not infeasible(now, waiting, plan)


@pytest.mark.parametrize("name", ALL)
def test_the_same_state_and_seed_give_the_same_plan(name: str) -> None:
    now, waiting = MOMENTS[2]
    first, second = (make_planner(name).assign(now, waiting, 7).host.tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("lean", "weights"), [(CostLean(), Weights(1, 0, 0, 0)), (EnergyLean(), Weights(0, 1, 0, 0)), (OnePerHost(), Weights(0, 0, 1, 0))]
)
def test_each_corner_beats_first_fit_and_random_on_its_own_objective(lean: Planner, weights: Weights) -> None:
    def total(planner: Planner) -> float:
        return sum(objective(s, t, planner.assign(s, t, 1), weights) for s, t in MOMENTS)

    assert total(lean) <= total(FirstFit())
    assert total(lean) < total(RandomHost())


@pytest.mark.parametrize("name", candidates())
def test_only_forecasters_look_at_the_past_and_only_of_hosts_with_tasks(name: str) -> None:
    now, waiting = state([] if name in FORECASTERS else [(0, 1), (2, 4)]), tasks(1, 3, 5)
    rng = np.random.default_rng(0)
    busy = replace(now, utilisation=rng.uniform(size=len(now.fleet)), history=rng.uniform(size=(40, len(now.fleet))))
    assert busy.digest(waiting) != now.digest(waiting)
    assert busy.digest(waiting, past=False) == now.digest(waiting, past=False)
    first, second = (make_planner(name).assign(s, waiting, 7).host.tolist() for s in (now, busy))
    assert first == second


def test_full_hosts_leave_tasks_waiting() -> None:
    tiny = make_fleet(((state().fleet.types[0], 1),))
    now, waiting = state(fleet=tiny), tasks(2, 2, 2, 2, 2)
    for name in ALL:
        plan = make_planner(name).assign(now, waiting, 1)
        assert sorted(plan.host.tolist()) == [-1, -1, 0, 0, 0], name


def test_the_previous_plan_is_repeated_by_application() -> None:
    now = state(previous=[(0, 3), (0, 5), (2, 1)])
    assert previous_plan(now, tasks(0, 0, 0, 2, 4)).host.tolist() == [3, 5, 3, 1, -1]


def test_random_depends_on_its_seed() -> None:
    now, waiting = MOMENTS[2]
    plans = {tuple(RandomHost().assign(now, waiting, seed).host.tolist()) for seed in range(5)}
    assert len(plans) == 5


def test_an_unknown_planner_is_named_in_the_error() -> None:
    with pytest.raises(InvalidInput, match="'fifo'"):
        make_planner("fifo")


def test_every_candidate_can_be_made() -> None:
    for name in candidates():
        assert make_planner(name).name == name
    assert set(HEURISTICS) <= set(candidates())
    assert not set(COMPARATORS) & set(candidates())
    assert np.unique(candidates()).size == len(candidates())
