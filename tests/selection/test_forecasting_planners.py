"""ARIMA+ACO, LSTM+ACO and Decision-NN as they are shipped."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tests.selection.test_planners import MOMENTS
from tiphys_models.selection.cloud.draft import objective
from tiphys_models.selection.cloud.hosts import B2S, make_fleet
from tiphys_models.selection.cloud.repair import infeasible
from tiphys_models.selection.cloud.tasks import ANY_POOL
from tiphys_models.selection.planners.arima_aco import ArimaAco
from tiphys_models.selection.planners.arima_aco import make as make_arima_aco
from tiphys_models.selection.planners.decision_nn import DecisionNN
from tiphys_models.selection.planners.decision_nn import make as make_decision_nn
from tiphys_models.selection.planners.heuristics import FirstFit, RandomHost
from tiphys_models.selection.planners.lstm_aco import LstmAco
from tiphys_models.selection.planners.lstm_aco import make as make_lstm_aco
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import make_planner
from tiphys_models.selection.planners.search import OBJECTIVE

NAMES = ("arima-aco", "lstm-aco", "decision-nn")


@cache
def forecasting() -> tuple[ArimaAco | LstmAco | DecisionNN, ...]:
    return make_arima_aco(), make_lstm_aco(), make_decision_nn()


@pytest.mark.parametrize("index", range(3), ids=NAMES)
@pytest.mark.parametrize("believed", [False, True])
def test_each_beats_first_fit_and_random_on_its_own_objective(index: int, believed: bool) -> None:
    planner = forecasting()[index]

    def total(other: Planner) -> float:
        values = []
        for now, waiting in MOMENTS:
            judged = planner.believed(now) if believed else now
            values.append(objective(judged, waiting, other.assign(now, waiting, 1), OBJECTIVE))
        return sum(values)

    assert total(planner) < 0.9 * total(FirstFit())
    assert total(planner) < 0.9 * total(RandomHost())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 100])
def test_each_places_any_number_of_tasks_where_they_fit(name: str, count: int) -> None:
    now, waiting = state([(0, 3)], fleet=make_fleet()), tasks(*[i % 7 for i in range(count)])
    plan = make_planner(name).assign(now, waiting, now.digest(waiting))
    assert len(plan) == count
    assert (plan.host >= 0).all()
    assert not infeasible(now, waiting, plan)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_state_and_seed_give_the_same_plan(name: str) -> None:
    now, waiting = MOMENTS[2]
    first, second = (make_planner(name).assign(now, waiting, 7).host.tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_full_and_forbidden_hosts_leave_tasks_waiting(name: str) -> None:
    tiny = state(fleet=make_fleet(((B2S, 1),)))
    assert sorted(make_planner(name).assign(tiny, tasks(2, 2, 2, 2, 2), 1).host.tolist()) == [-1, -1, 0, 0, 0]
    assert make_planner(name).assign(tiny, tasks(0, pools=ANY_POOL << np.uint64(1)), 1).host.tolist() == [-1]


@pytest.mark.parametrize("index", range(3), ids=NAMES)
def test_a_forecast_moves_remaining_work_of_busy_hosts_only(index: int) -> None:
    now = state([(0, 0), (2, 5), (5, 7)])
    believed = forecasting()[index].believed(now)
    assert believed.running.remaining_core_s.shape == (3,)
    assert (believed.running.remaining_core_s > 0).all()
    assert believed.running.host.tolist() == now.running.host.tolist()
    empty = state()
    assert not len(forecasting()[index].believed(empty).running)
