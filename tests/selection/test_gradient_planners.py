from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tests.selection.test_planners import MOMENTS
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.selection.cloud.draft import objective
from tiphys_models.selection.cloud.hosts import make_fleet
from tiphys_models.selection.cloud.repair import infeasible, repair
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import WORK_SIGMA, Tasks
from tiphys_models.selection.planners import gobi, gosh, graf, semi_direct
from tiphys_models.selection.planners.board import make_board
from tiphys_models.selection.planners.descent import DescentSchedule, descend, gradient_scale, hessian_scale, one_hot, softmax_descend
from tiphys_models.selection.planners.heuristics import FirstFit, RandomHost
from tiphys_models.selection.planners.layers import natural_network
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import candidates, make_planner
from tiphys_models.selection.planners.surrogate import outcome_weights, proposals, reference

NAMES = ("semi-direct", "graf", "gobi", "gosh")
OBJECTIVES = {"semi-direct": semi_direct.OBJECTIVE, "graf": graf.OBJECTIVE, "gobi": gobi.OBJECTIVE, "gosh": gosh.OBJECTIVE}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 20])
def test_any_number_of_tasks_is_placed_where_they_fit(name: str, count: int) -> None:
    now, waiting = state([(0, 3)], fleet=make_fleet()), tasks(*[i % 7 for i in range(count)])
    plan = make_planner(name).assign(now, waiting, now.digest(waiting))
    assert len(plan) == count
    assert (plan.host >= 0).all()
    assert not infeasible(now, waiting, plan)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_tasks_with_pools_are_placed(name: str) -> None:
    now = state([(0, 3)], fleet=make_fleet(pools=4))
    waiting = tasks(*[i % 7 for i in range(100)])
    waiting = dataclasses.replace(waiting, pools=np.left_shift(np.uint64(1), (np.arange(100) % 4).astype(np.uint64)))
    plan = make_planner(name).assign(now, waiting, 5)
    assert (plan.host >= 0).all()
    assert not infeasible(now, waiting, plan)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_state_and_seed_give_the_same_plan(name: str) -> None:
    now, waiting = MOMENTS[2]
    first, second = (make_planner(name).assign(now, waiting, 7).host.tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", NAMES)
def test_full_hosts_leave_tasks_waiting(name: str) -> None:
    tiny = make_fleet(((state().fleet.types[0], 1),))
    now, waiting = state(fleet=tiny), tasks(2, 2, 2, 2, 2)
    plan = make_planner(name).assign(now, waiting, 1)
    assert sorted(plan.host.tolist()) == [-1, -1, 0, 0, 0]


def own_objective(name: str, now: CloudState, waiting: Tasks, plan: Plan) -> float:
    """Semi-Direct, GRAF, GOBI: E. GOSH: mean and standard deviation of E over drawn works, which its network has to know by itself."""
    if name != "gosh":
        return objective(now, waiting, plan, OBJECTIVES[name])
    rng = np.random.default_rng(11)
    fixed = reference(now, waiting)
    drawn = []
    for _ in range(24):
        works = waiting.work_core_s * np.exp(rng.normal(-(WORK_SIGMA**2) / 2, WORK_SIGMA, len(waiting)))
        other = dataclasses.replace(waiting, work_core_s=works)
        unit = reference(now, other)
        energy = objective(now, other, plan, Weights(0, 1, 0, 0)) * unit.joules / max(fixed.joules, 1e-9)
        late = objective(now, other, plan, Weights(0, 0, 0, 1))
        drawn.append(gosh.OBJECTIVE.energy * energy + gosh.OBJECTIVE.violation * late)
    return float(np.mean(drawn) + gosh.KAPPA * np.std(drawn))


@pytest.mark.parametrize("name", NAMES)
def test_each_beats_random_and_first_fit_on_its_own_objective(name: str) -> None:
    def total(planner: Planner) -> float:
        return sum(own_objective(name, s, t, repair(s, t, planner.assign(s, t, 1))) for s, t in MOMENTS)

    mine = total(make_planner(name))
    assert mine < total(FirstFit())
    assert mine < total(RandomHost())


def test_descent_alone_improves_a_bad_start() -> None:
    """Without greedy seeds and without finishing: what the gradients of the shipped surrogates are worth by themselves."""
    crowded = [(state(fleet=make_fleet()), tasks(*[i % 7 for i in range(n)])) for n in (3, 5, 8)]

    def improved(name: str) -> float:
        before = after = 0.0
        for now, waiting in crowded:
            start = Plan(np.zeros(len(waiting), np.int64))  # all on one small host
            cost, energy, response = outcome_weights(reference(now, waiting), OBJECTIVES[name])
            match name:
                case "gobi":
                    weights = gobi.make().weights
                    found = proposals(now, waiting, [start], lambda b, c: descend(gobi.surrogate(b, weights, np.array([energy, response])), c, b.allowed, gradient_scale, DescentSchedule()))  # fmt: skip # noqa: B023
                case "gosh":
                    network = gosh.make().weights
                    found = proposals(now, waiting, [start], lambda b, c: descend(v := gosh.surrogate(b, network, 0.5), c, b.allowed, hessian_scale(v, np.random.default_rng(0)), DescentSchedule()))  # fmt: skip # noqa: B023
                case _:
                    graph = graf.make().weights
                    found = proposals(now, waiting, [start], lambda b, c: [softmax_descend(graf.surrogate(b, graph, np.array([cost, response])), c, b.allowed)])  # fmt: skip # noqa: B023
            before += objective(now, waiting, start, OBJECTIVES[name])
            after += objective(now, waiting, repair(now, waiting, found[0]), OBJECTIVES[name])
        return after / before

    assert improved("gobi") < 0.8
    assert improved("gosh") < 0.8
    assert improved("graf") < 0.8


def quadratic(best: np.ndarray) -> object:
    """Least where every task is on its best column."""
    target = one_hot(best, 5)
    return lambda x: (float(((x - target) ** 2).sum()), 2 * (x - target))


def test_descents_find_the_least_of_a_convex_surrogate() -> None:
    best, start, allowed = np.array([3, 1, 4]), np.array([0, 0, 4]), np.ones((3, 5), np.bool_)
    value = quadratic(best)
    assert descend(value, start, allowed, gradient_scale, DescentSchedule())[0].tolist() == best.tolist()  # type: ignore[arg-type]
    second = hessian_scale(value, np.random.default_rng(0))  # type: ignore[arg-type]
    assert descend(value, start, allowed, second, DescentSchedule())[0].tolist() == best.tolist()  # type: ignore[arg-type]
    assert softmax_descend(value, start, allowed, steps=80).tolist() == best.tolist()  # type: ignore[arg-type]


def test_descents_never_leave_what_is_allowed() -> None:
    allowed = np.ones((3, 5), np.bool_)
    allowed[0, 3] = False
    value, start = quadratic(np.array([3, 1, 4])), np.array([0, 0, 0])
    for found in descend(value, start, allowed, gradient_scale, DescentSchedule()):  # type: ignore[arg-type]
        assert found[0] != 3
    assert softmax_descend(value, start, allowed, steps=80)[0] != 3  # type: ignore[arg-type]


def test_hosts_that_look_alike_are_merged() -> None:
    board = make_board(state(fleet=make_fleet()), tasks(0, 1), np.arange(2), np.full(2, -1))
    assert np.bincount(board.hosts // 20, minlength=5).tolist() == [2, 0, 0, 2, 2]  # of each type as many as there are tasks


def test_a_board_sees_tasks_of_earlier_batches() -> None:
    now, waiting = state(), tasks(0, 1)
    first = make_board(now, waiting, np.array([1]), np.array([-1, -1]))
    later = make_board(now, waiting, np.array([1]), np.array([2, -1]))
    at = later.hosts.tolist().index(2)
    assert later.host_inputs[at, 5] == 0.25
    assert first.host_inputs[:, 5].max() == 0


def test_caution_avoids_what_is_uncertain() -> None:
    """The deviation that the shipped network sees grows with what is packed on one host."""
    planner = gosh.make()
    now, waiting = state(fleet=make_fleet()), tasks(0, 1, 2, 0, 1, 2)
    apart, together = Plan(np.arange(6)), Plan(np.zeros(6, np.int64))
    first = gosh.first_board(now, waiting)
    assert planner.deviation(now, waiting, together, first) > planner.deviation(now, waiting, apart, first)


def test_forecasts_follow_what_runs() -> None:
    planner = semi_direct.make()
    now = state([(2, 0), (3, 4)], fleet=None)
    mean, variance = planner.forecast(now)
    assert mean[0] > 0.8  # two threads of a heavy task on two cores, for longer than the interval
    assert 0.05 < mean[4] < 0.4  # four core seconds left of 40
    assert (variance > 0).all()


def test_moments_of_natural_parameter_layers_agree_with_sampled_networks() -> None:
    """Moment matching against 100,000 networks drawn from the weights' distributions, one layer and a ReLU deep."""
    rng = np.random.default_rng(5)
    w, s, b, c = rng.normal(size=(3, 2)), rng.uniform(0.05, 0.2, (3, 2)), rng.normal(size=2), rng.uniform(0.05, 0.1, 2)
    weights = {"w0": w, "s0": s, "b0": b, "c0": c, "w1": np.eye(2), "s1": np.zeros((2, 2)), "b1": np.zeros(2), "c1": np.zeros(2)}
    x = np.array([[0.5, -1.0, 0.8]])
    (m, v), _ = natural_network(x, weights, 2)
    drawn = np.maximum(
        np.einsum("i,kij->kj", x[0], rng.normal(w, np.sqrt(s), (100_000, 3, 2))) + rng.normal(b, np.sqrt(c), (100_000, 2)), 0
    )
    np.testing.assert_allclose(m[0], drawn.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(v[0], drawn.var(axis=0), atol=0.06)


def test_weights_for_another_planner_are_refused() -> None:
    with pytest.raises(ArtifactRefused):
        gobi.make(SHIPPED / "gosh.json")


def test_all_four_gradient_planners_are_candidates() -> None:
    assert set(NAMES) <= set(candidates())
