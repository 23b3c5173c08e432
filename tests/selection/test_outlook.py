from __future__ import annotations

import time

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tiphys_models.selection.cloud import outlook
from tiphys_models.selection.cloud.draft import Draft, objective
from tiphys_models.selection.cloud.hosts import B2S, B8MS, HostType, power_w
from tiphys_models.selection.cloud.outlook import expected_outcome, finish_times
from tiphys_models.selection.cloud.repair import infeasible, repair
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Divisors, Outcome, Weights, cost_at_sla
from tiphys_models.selection.cloud.state import Plan
from tiphys_models.selection.cloud.tasks import expected_remaining


def test_power_is_linear_between_the_tabulated_points() -> None:
    assert power_w(B2S.power_w, 0.55) == pytest.approx(102.5)
    assert power_w(B2S.power_w, 0.0) == 75.2
    assert power_w(B2S.power_w, 1.0) == 117.0
    assert power_w(B2S.power_w, 1.7) == 117.0


def test_tasks_on_a_host_share_its_cores() -> None:
    # two cores, works 4 and 10: one core each until 4 s, then both cores: 4 + 6 / 2
    ends, busy = finish_times(2, [10.0, 4.0], 10.0)
    assert ends == [pytest.approx(7.0), pytest.approx(4.0)]
    assert busy == [pytest.approx(14.0)]


def test_a_task_uses_no_more_than_its_threads() -> None:
    ends, busy = finish_times(8, [30.0, 30.0], 10.0, start_s=1.0)
    assert ends == [pytest.approx(16.0)] * 2
    assert busy == [pytest.approx(36.0), pytest.approx(24.0)]


def test_a_host_of_a_milli_core_is_looked_at_as_fast_as_any_other() -> None:
    crumb = HostType("crumb", 0.001, 1, 1, 3600.0, B2S.power_w, 0.0)
    began_s = time.thread_time()
    found = expected_outcome(crumb, [4e6, 8e6], [0.0, 0.0], [1.0, 1.0], 5.0)  # two planners' worst tasks: 8e9 and 12e9 s
    assert time.thread_time() - began_s < 0.5
    assert found.response_s == pytest.approx(20e9)
    assert found.usd == pytest.approx(12e9, rel=1e-6)
    assert found.joules == pytest.approx(12e9 * 117.0, rel=1e-6)


@pytest.mark.parametrize("start_s", [0.0, 3.0, 7.0])
def test_a_far_end_is_the_same_with_and_without_steps(start_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    works = [3000.0, 9001.0, 15.0, 40_000.0]
    found = expected_outcome(B2S, works, [0.0] * 4, [1.0] * 4, 5.0, start_s)
    monkeypatch.setattr(outlook, "_STEPPED", 10**9)
    stepped = expected_outcome(B2S, works, [0.0] * 4, [1.0] * 4, 5.0, start_s)
    assert (found.usd, found.joules, found.response_s) == pytest.approx((stepped.usd, stepped.joules, stepped.response_s), rel=1e-9)


def test_an_outlook_bills_whole_intervals() -> None:
    found = expected_outcome(B2S, [22.0], [5.0], [12.0], 10.0)  # 11 s alone: two intervals, the second used to a tenth
    assert found.usd == pytest.approx(20 * 0.0472 / 3600)
    assert found.joules == pytest.approx(10 * 117.0 + 10 * 78.2)
    assert found.response_s == pytest.approx(16.0)
    assert found.violations == pytest.approx(1 / (1 + np.exp(-4 / 1.2)))


def test_what_is_left_of_a_demand_shrinks_with_use_and_never_vanishes() -> None:
    left = [expected_remaining(10.0, used) for used in (0.0, 2.0, 8.0, 12.0, 30.0)]
    assert left[:2] == [10.0, pytest.approx(8.0, abs=0.01)]
    assert left[0] > left[1] > left[2] > left[3] > 0
    assert left[4] > 0
    rng = np.random.default_rng(1)
    demand = 10 * np.exp(rng.normal(-0.02, 0.2, 400_000))
    assert expected_remaining(10.0, 11.0) == pytest.approx(float((demand[demand > 11] - 11).mean()), rel=0.02)


def test_the_reference_plan_costs_one() -> None:
    now, waiting = state(), tasks(0, 3, 5)
    plan = Plan(np.array([0, 1, 2]))  # one B2s each: the reference itself
    for weights in (Weights(1, 0, 0, 0), Weights(0, 1, 0, 0), Weights(0, 0, 1, 0), Weights(0.5, 0.2, 0.3, 0)):
        assert objective(now, waiting, plan, weights) == pytest.approx(sum((weights.cost, weights.energy, weights.response)))


def test_sharing_a_host_saves_money_and_costs_time() -> None:
    now, waiting = state(running=[(3, 0)]), tasks(3)
    shared, alone = Plan(np.array([0])), Plan(np.array([1]))
    assert objective(now, waiting, shared, Weights(1, 0, 0, 0)) < objective(now, waiting, alone, Weights(1, 0, 0, 0))
    assert objective(now, waiting, shared, Weights(0, 0, 1, 0)) > objective(now, waiting, alone, Weights(0, 0, 1, 0))


def test_leaving_a_task_waiting_is_never_free() -> None:
    now, waiting = state(), tasks(3)
    assert objective(now, waiting, Plan(np.array([-1])), DEFAULT) > objective(now, waiting, Plan(np.array([0])), DEFAULT)


def test_a_draft_forgets_what_is_taken_back() -> None:
    draft = Draft(state(running=[(0, 1)]), tasks(0, 2), DEFAULT)
    before = {host: draft.delta(0, host) for host in draft.candidates(0)}
    draft.place(1, 1)
    assert draft.delta(0, 1) != before[1]
    draft.take_back(1)
    assert {host: draft.delta(0, host) for host in draft.candidates(0)} == before
    assert len(before) == 4  # the host in use, and one fresh host of each type


def test_repair_keeps_what_fits_and_moves_the_rest() -> None:
    now, waiting = state(), tasks(2, 2, 2, 2)  # 1,200 MiB each: three fit on 4 GiB
    crowded = Plan(np.zeros(4, np.int64))
    assert infeasible(now, waiting, crowded) == [3]
    mended = repair(now, waiting, crowded)
    assert mended.host[:3].tolist() == [0, 0, 0]
    assert not infeasible(now, waiting, mended)
    assert mended.host[3] > 0


def test_repair_respects_pools_and_leaves_waiting_what_has_no_place() -> None:
    from tiphys_models.selection.cloud.hosts import make_fleet

    fleet = make_fleet(((B8MS, 2),), pools=2)
    now = state(fleet=fleet)
    only_second = tasks(0, pools=np.uint64(2))
    assert repair(now, only_second, Plan(np.array([0]))).host.tolist() == [1]
    assert repair(now, tasks(0, pools=np.uint64(4)), Plan(np.array([0]))).host.tolist() == [-1]


def test_shares_of_decisions_add_up_to_j() -> None:
    divisors = Divisors(0.2, 0.4, 6.0, 0.1, tasks=1000)
    parts = [Outcome(0.1, 7.2e5, 2500.0, 30.0, 400), Outcome(0.06, 3.6e5, 3000.0, 20.0, 600)]
    total = sum(divisors.share(DEFAULT, p) for p in parts)
    assert total == pytest.approx(divisors.j(DEFAULT, 0.16, 0.3, 5.5, 0.05, 1000))


def test_a_missed_deadline_costs_the_same_money_under_any_divisors() -> None:
    outcomes = Outcome(usd=3e-4), Outcome(violations=1.0)
    for divisors in DIVISORS.values():
        bill, missed = (divisors.share(cost_at_sla(divisors, missed_usd=3e-4), outcome) for outcome in outcomes)
        assert bill == pytest.approx(missed)


def test_digests_tell_states_apart() -> None:
    waiting = tasks(0, 1)
    first, second = state(running=[(0, 1)]), state(running=[(0, 2)])
    assert first.digest(waiting) == state(running=[(0, 1)]).digest(waiting)
    assert (
        len({first.digest(waiting), second.digest(waiting), first.digest(tasks(1, 0)), state([(0, 1)], previous=[(0, 1)]).digest(waiting)})
        == 4
    )


def test_a_forecast_moves_remaining_work_and_wakes_nobody() -> None:
    now = state(running=[(0, 0), (3, 4)])
    busier = now.with_forecast(np.full(8, 1.0))
    idler = now.with_forecast(np.zeros(8))
    assert (busier.running.remaining_core_s >= now.running.remaining_core_s - 1e-9).all()
    assert (idler.running.remaining_core_s < now.running.remaining_core_s).all()
    assert len(busier.running) == 2
