"""Placement policies as planners, and the selector that looks at every candidate's plan."""

from __future__ import annotations

import numpy as np
import pytest

from tests.selection.small import state, tasks
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.registry import PolicyName
from tiphys_models.selection.cloud.repair import infeasible
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Outcome, Weights
from tiphys_models.selection.planners.per_pod import make_candidate, make_candidates
from tiphys_models.selection.selectors.look_ahead import LookAhead
from tiphys_models.selection.selectors.protocol import Scored, take

NAMES = ("cost-lean", "energy-lean", "least-connections")


def look_ahead(weights: Weights = DEFAULT) -> LookAhead:
    return LookAhead(make_candidates(NAMES), weights, DIVISORS["regime"])


@pytest.mark.parametrize("name", list(PolicyName))
def test_every_placement_policy_plans_what_is_feasible_and_the_same_twice(name: PolicyName) -> None:
    waiting, now = tasks(0, 3, 5, 2), state([(1, 0), (1, 4)])
    planner = make_candidate(str(name))
    plan = planner.assign(now, waiting, 1)
    assert planner.name == name
    assert infeasible(now, waiting, plan) == []
    assert (plan.host >= 0).all()
    assert plan.host.tolist() == planner.assign(now, waiting, 1).host.tolist()


def test_a_policy_sees_what_it_has_just_placed() -> None:
    plan = make_candidate("least-connections").assign(state(), tasks(0, 0, 0, 0), 1)
    assert len(set(plan.host.tolist())) == 4


def test_tasks_wait_where_no_host_may_take_them() -> None:
    plan = make_candidate("round-robin").assign(state(), tasks(0, pools=np.uint64(2)), 1)
    assert plan.host.tolist() == [-1]


def test_the_lowest_price_wins_and_all_are_told() -> None:
    choice = look_ahead(Weights(1.0, 0.0, 0.0, 0.0)).choose(1, state(), tasks(0, 0), NAMES)
    assert set(choice.predicted) == set(NAMES)
    assert choice.candidate == min(choice.predicted, key=choice.predicted.__getitem__)
    assert choice.thinking_s > 0


def test_measured_costs_correct_the_executed_candidate_only() -> None:
    selector, now, waiting = look_ahead(), state(), tasks(0, 0)
    before = take(selector, 0, now, waiting, NAMES)
    for decision in range(1, 200):
        price = take(selector, decision, now, waiting, ("cost-lean",)).predicted["cost-lean"]
        assert price > 0
        selector.learn(Scored(decision, Outcome(), 2 * before.predicted["cost-lean"]))
    after = take(selector, 200, now, waiting, NAMES)
    assert after.predicted["cost-lean"] == pytest.approx(2 * before.predicted["cost-lean"], rel=0.05)
    assert after.predicted["energy-lean"] == before.predicted["energy-lean"]


def test_a_restored_selector_chooses_as_the_one_it_was_saved_from() -> None:
    one, now, waiting = look_ahead(), state(), tasks(0, 3)
    take(one, 1, now, waiting, NAMES)
    two = look_ahead()
    two.restore(one.online_state())
    for selector in (one, two):
        selector.learn(Scored(1, Outcome(), 1.0))
    assert take(one, 2, now, waiting, NAMES) == take(two, 2, now, waiting, NAMES)


def test_forgotten_decisions_are_not_learned_and_not_kept() -> None:
    selector = look_ahead()
    take(selector, 1, state(), tasks(0), NAMES)
    selector.forget(1)
    assert selector.online_state()["open"].shape == (0, 3)
    selector.learn(Scored(1, Outcome(), 1.0))
    assert selector.online_state()["counts"].sum() == 0


def test_a_checkpoint_of_other_candidates_is_refused() -> None:
    arrays = LookAhead(make_candidates(NAMES[:2]), DEFAULT, DIVISORS["regime"]).online_state()
    with pytest.raises(ArtifactRefused):
        look_ahead().restore(arrays)
    with pytest.raises(ArtifactRefused, match="not among"):
        look_ahead().restore(look_ahead().online_state() | {"open": np.array([[1.0, 9.0, 0.1]])})
