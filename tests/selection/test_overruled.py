"""A selector chooses without remembering anything, and remembers what was done, whoever decided it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.selection.learned import network, surrogate
from tests.selection.small import state, tasks
from tiphys_models.selection.cloud.hosts import make_fleet
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.per_pod import make_candidates
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import HEURISTICS, make_planners
from tiphys_models.selection.selectors.dqn import DQN
from tiphys_models.selection.selectors.encoding import GENERAL_NAMES
from tiphys_models.selection.selectors.guard import PAUSE
from tiphys_models.selection.selectors.look_ahead import LookAhead
from tiphys_models.selection.selectors.metanet import MetaNet
from tiphys_models.selection.selectors.metanet_paper import INPUTS, MetaNetPaper
from tiphys_models.selection.selectors.protocol import Scored, Selector, take
from tiphys_models.selection.selectors.ucb import UCB

FLEET = make_fleet()
NOW = state([(0, 0), (2, 1)], fleet=FLEET)
WAITING = tasks(0, 1, 4)
UNIT = DIVISORS["regime"]
SCORED = Scored(0, Outcome(1e-3, 900.0, 40.0, 1.0, 3.0), 0.5)
MONEY = Weights(1, 0, 0, 0)


def metanet(fallback: str = "one-per-host", **options: object) -> MetaNet:
    return MetaNet(surrogate(), MONEY, UNIT, make_planners(HEURISTICS), fallback=fallback, **options)  # type: ignore[arg-type]


def paper() -> MetaNetPaper:
    rng = np.random.default_rng(0)
    memory = np.abs(rng.normal(size=(40, INPUTS + 2))).astype(np.float32)
    memory[:, 0] = rng.integers(3, size=40)
    return MetaNetPaper(HEURISTICS, network((INPUTS, 64, 64, 3)), np.full(3, 1e-3), memory, 5)


def dqn() -> DQN:
    return DQN(HEURISTICS, network((len(GENERAL_NAMES) + 4, 64, 64, 3)), DEFAULT, UNIT, 5)


MAKERS: dict[str, Callable[[], Selector]] = {
    "metanet": metanet,
    "metanet-paper": paper,
    "dqn": dqn,
    "ucb": lambda: UCB(HEURISTICS),
    "preview": lambda: LookAhead(make_candidates(HEURISTICS), DEFAULT, UNIT),
}
LATER = state([(0, 0), (2, 1), (3, 4)], fleet=FLEET, used_core_s=2.0)


def learned(selector: Selector) -> dict[str, list[float]]:
    """What it has become after the decision was scored and two more were made."""
    selector.learn(SCORED)
    for decision in (1, 2):
        take(selector, decision, LATER, WAITING, HEURISTICS)
        selector.forget(decision)
    return {name: np.round(array, 12).tolist() for name, array in selector.online_state().items()}


@pytest.mark.parametrize("name", MAKERS)
def test_choosing_twice_is_choosing_once_and_leaves_no_trace(name: str) -> None:
    selector, untouched = MAKERS[name](), MAKERS[name]()
    for one in (selector, untouched):
        take(one, 0, NOW, WAITING, HEURISTICS)
        one.learn(SCORED)
        one.observe(LATER, WAITING)
    first, second = (selector.choose(1, LATER, WAITING, HEURISTICS) for _ in range(2))
    assert first == second
    assert repr(vars(selector).keys()) == repr(vars(untouched).keys())
    for _ in range(2):
        untouched.choose(1, LATER, WAITING, HEURISTICS[:1])
    one_state, other_state = selector.online_state(), untouched.online_state()
    for key, array in one_state.items():
        np.testing.assert_array_equal(array, other_state[key])
    assert selector.choose(1, LATER, WAITING, HEURISTICS) == untouched.choose(1, LATER, WAITING, HEURISTICS)


@pytest.mark.parametrize("held", HEURISTICS)
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "metanet"])
def test_what_is_learned_from_an_overruled_decision_is_what_a_deliberate_one_teaches(name: str, held: str) -> None:
    overruled, deliberate = MAKERS[name](), MAKERS[name]()
    overruled.observe(NOW, WAITING)
    overruled.commit(0, overruled.choose(0, NOW, WAITING, HEURISTICS), held)
    take(deliberate, 0, NOW, WAITING, (held,))  # offered nothing else, these choose it and note the same
    assert learned(overruled) == learned(deliberate)


@pytest.mark.parametrize("held", HEURISTICS)
def test_metanet_judges_an_overruled_decision_against_the_same_home(held: str) -> None:
    """With one candidate on offer that one would be its home: a decision away would teach the guard as one at home."""
    selector = metanet()
    choice = selector.choose(0, NOW, WAITING, HEURISTICS)
    selector.commit(0, choice, held)
    (row,) = selector.online_state()["open"]
    _, taken, count, away, promised = row[:5]
    assert (HEURISTICS[int(taken)], count, away) == (held, 3.0, float(held != "one-per-host"))
    assert promised == pytest.approx((choice.predicted["one-per-host"] - choice.predicted[held]) / 3)


def test_a_pause_of_the_guard_lasts_as_many_decisions_however_many_are_overruled() -> None:
    selector = metanet()
    guard = np.zeros(6)
    guard[5] = PAUSE
    selector.restore({**selector.online_state(), "guard": guard, "open": np.zeros((0, selector.online_state()["open"].shape[1]))})
    for decision in range(PAUSE):
        choice = selector.choose(decision, NOW, WAITING, HEURISTICS)
        assert choice.reason == "Fallback"
        selector.commit(decision, choice, "cost-lean")
        selector.forget(decision)
    assert selector.choose(PAUSE, NOW, WAITING, HEURISTICS).reason != "Fallback"


@dataclass(slots=True)
class Counting:
    """A planner that counts its plans."""

    planner: Planner
    plans: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.planner.name

    def assign(self, state: CloudState, tasks: Tasks, digest: int) -> Plan:
        self.plans.append(digest)
        return self.planner.assign(state, tasks, digest)


def test_plans_are_previewed_once_a_decision() -> None:
    planners = {name: Counting(planner) for name, planner in make_planners(HEURISTICS).items()}
    selector = MetaNet(surrogate(), MONEY, UNIT, planners, fallback="one-per-host")
    selector.commit(0, selector.choose(0, NOW, WAITING, HEURISTICS), "energy-lean")
    assert [len(planner.plans) for planner in planners.values()] == [1, 1, 1]


@pytest.mark.parametrize("name", MAKERS)
def test_a_candidate_that_the_selector_does_not_know_teaches_it_nothing(name: str) -> None:
    selector, untouched = MAKERS[name](), MAKERS[name]()
    selector.commit(0, selector.choose(0, NOW, WAITING, HEURISTICS), "somebody-else")
    selector.learn(SCORED)
    for key, array in untouched.online_state().items():
        np.testing.assert_array_equal(selector.online_state()[key], array)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_scored_without_having_been_committed_does_no_harm(name: str) -> None:
    selector = MAKERS[name]()
    selector.choose(7, NOW, WAITING, HEURISTICS)
    selector.learn(Scored(7, SCORED.outcome, SCORED.j))
    selector.forget(7)
