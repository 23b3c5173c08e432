from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tests.selection.test_planners import MOMENTS
from tiphys_models.selection.cloud.draft import objective
from tiphys_models.selection.cloud.hosts import B2S, B8MS, make_fleet
from tiphys_models.selection.cloud.repair import infeasible
from tiphys_models.selection.cloud.score import DEFAULT, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.colony import EVAPORATION, Pheromone, colony
from tiphys_models.selection.planners.fillings import Fillings, Layout
from tiphys_models.selection.planners.moves import improve
from tiphys_models.selection.planners.search import OBJECTIVE, seeds

SMALL = make_fleet(((B2S, 3), (B8MS, 1)))


def every_plan(now: CloudState, waiting: Tasks) -> Iterator[Plan]:
    for hosts in product(range(len(now.fleet)), repeat=len(waiting)):
        plan = Plan(np.array(hosts, np.int64))
        if not infeasible(now, waiting, plan):
            yield plan


@pytest.mark.parametrize("weights", [OBJECTIVE, DEFAULT, Weights(0, 1, 0, 0)])
@pytest.mark.parametrize("running", [[], [(2, 0)], [(2, 0), (2, 1), (2, 2)]])
def test_a_colony_finds_the_best_of_all_plans_of_a_small_cloud(running: list[tuple[int, int]], weights: Weights) -> None:
    now, waiting = state(running, fleet=SMALL), tasks(0, 2, 2, 5, multiple=1.2)
    fillings = Fillings(now, waiting, weights)
    found = objective(now, waiting, colony(fillings, seeds(fillings), 1).plan(), weights)
    best = min(objective(now, waiting, plan, weights) for plan in every_plan(now, waiting))
    assert found == pytest.approx(best)


@pytest.mark.parametrize(("now", "waiting"), MOMENTS)
@pytest.mark.parametrize("resume_s", [0.0, 5.0])
def test_a_layout_s_value_is_the_objective_of_its_plan(now: CloudState, waiting: Tasks, resume_s: float) -> None:
    from dataclasses import replace

    now = replace(now, resume_s=resume_s)
    fillings = Fillings(now, waiting, DEFAULT)
    rng = np.random.default_rng(0)
    layout = Layout.of(fillings, rng.integers(0, len(now.fleet), len(waiting)).tolist())
    assert layout.value == pytest.approx(objective(now, waiting, layout.plan(), DEFAULT))
    improve(layout)
    assert layout.value == pytest.approx(objective(now, waiting, layout.plan(), DEFAULT))
    assert not infeasible(now, waiting, layout.plan())


def test_taking_a_task_back_leaves_everything_as_it_was() -> None:
    now, waiting = MOMENTS[2]
    layout = Layout.of(Fillings(now, waiting, DEFAULT), [5] * 3 + [-1] * 9)
    before, value = {f: sorted(hosts) for f, hosts in layout.groups.items()}, layout.value
    host = layout.host[0]
    layout.take(0)
    assert layout.host[0] == -1
    assert layout.value != pytest.approx(value)
    kind = layout.fillings.kind_of[0]
    step = layout.fillings.grow(layout.filling_of[host], kind)
    assert step is not None
    layout.put(0, layout.filling_of[host], step, host)
    assert {f: sorted(hosts) for f, hosts in layout.groups.items()} == before
    assert layout.value == pytest.approx(value)


def test_a_hundred_equal_hosts_are_a_few_classes() -> None:
    now = state([(0, 0), (2, 61)], fleet=make_fleet())
    assert len(Fillings(now, tasks(0, 0, 1), DEFAULT).groups()) == 5  # three types, and two hosts with a task
    assert len(Fillings(now, tasks(0, 0, 1), DEFAULT).kinds) == 2


def test_a_colony_is_never_worse_than_its_seeds_and_beats_greedy_in_a_crowd() -> None:
    gains = []
    for now, waiting in MOMENTS:
        fillings = Fillings(now, waiting, OBJECTIVE)
        greedy = Layout.of(fillings, [-1] * len(waiting))
        start = greedy.value
        gains.append(start - colony(fillings, [greedy], 3).value)
    assert min(gains) >= -1e-9
    assert max(gains) > 0.03


def test_tasks_without_room_wait_and_are_charged_for_it() -> None:
    now, waiting = state(fleet=make_fleet(((B2S, 1),))), tasks(2, 2, 2, 2, 2)
    fillings = Fillings(now, waiting, OBJECTIVE)
    layout = colony(fillings, seeds(fillings), 1)
    assert sorted(layout.host) == [-1, -1, 0, 0, 0]
    assert layout.value == pytest.approx(objective(now, waiting, layout.plan(), OBJECTIVE))


def test_old_trails_fade() -> None:
    pheromone, now = Pheromone(), Fillings(*MOMENTS[0], OBJECTIVE)
    first, second = list(now.groups())[:2]
    pheromone.deposit([(0, first)], 1.0)
    pheromone.evaporate()
    pheromone.deposit([(0, second)], 1.0)
    # an untouched place has faded too: levels are in units of it
    assert pheromone.level(0, first) == 2.0
    assert pheromone.level(0, second) == pytest.approx(1 + 1 / (1 - EVAPORATION))
