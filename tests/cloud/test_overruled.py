"""A selector that was overruled remembers what was done, as if it had chosen that; it is asked once a decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.cloud.learned import network, surrogate
from tests.cloud.small import state, tasks
from tiphys_models.cloud.hosts import make_fleet
from tiphys_models.cloud.score import DEFAULT, DIVISORS, Outcome, Weights
from tiphys_models.cloud.state import CloudState, Plan
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.features.arrays import FloatArray
from tiphys_models.planners.per_pod import make_candidates
from tiphys_models.planners.protocol import Planner
from tiphys_models.planners.registry import HEURISTICS, make_planners
from tiphys_models.selectors.choice import SwitchLimit
from tiphys_models.selectors.dqn import DQN
from tiphys_models.selectors.encoding import GENERAL_NAMES
from tiphys_models.selectors.guard import PAUSE
from tiphys_models.selectors.look_ahead import LookAhead
from tiphys_models.selectors.metanet import MetaNet
from tiphys_models.selectors.metanet_paper import INPUTS, MetaNetPaper
from tiphys_models.selectors.protocol import Choice, Overrulable, Scored, Selector, overrule
from tiphys_models.selectors.ucb import UCB

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
        selector.choose(decision, LATER, WAITING, HEURISTICS)
        selector.forget(decision)
    return {name: np.round(array, 12).tolist() for name, array in selector.online_state().items()}


@pytest.mark.parametrize("held", HEURISTICS)
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "metanet"])
def test_what_is_learned_from_an_overruled_decision_is_what_a_deliberate_one_teaches(name: str, held: str) -> None:
    overruled, deliberate = MAKERS[name](), MAKERS[name]()
    overruled.choose(0, NOW, WAITING, HEURISTICS)
    overrule(overruled, 0, held)
    deliberate.choose(0, NOW, WAITING, (held,))  # offered nothing else, these choose it and note the same
    assert learned(overruled) == learned(deliberate)


@pytest.mark.parametrize("held", HEURISTICS)
def test_metanet_judges_an_overruled_decision_against_the_same_home(held: str) -> None:
    """With one candidate on offer, as it was asked before, that one was its home: a decision away taught the guard as one at home."""
    selector = metanet()
    choice = selector.choose(0, NOW, WAITING, HEURISTICS)
    selector.overruled(0, held)
    (row,) = selector.online_state()["open"]
    _, taken, count, away, promised = row[:5]
    assert (HEURISTICS[int(taken)], count, away) == (held, 3.0, float(held != "one-per-host"))
    assert promised == pytest.approx((choice.predicted["one-per-host"] - choice.predicted[held]) / 3)
    chosen = metanet(fallback="one-per-host")
    chosen.choose(0, NOW, WAITING, HEURISTICS)
    if held == choice.candidate:
        np.testing.assert_array_equal(row, chosen.online_state()["open"][0])


def test_a_pause_of_the_guard_lasts_as_many_decisions_however_many_are_overruled() -> None:
    selector = metanet()
    guard = np.zeros(6)
    guard[5] = PAUSE
    selector.restore({**selector.online_state(), "guard": guard, "open": np.zeros((0, selector.online_state()["open"].shape[1]))})
    for decision in range(PAUSE):
        assert selector.choose(decision, NOW, WAITING, HEURISTICS).reason == "Fallback"
        selector.overruled(decision, "cost-lean")
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
    selector.choose(0, NOW, WAITING, HEURISTICS)
    selector.overruled(0, "energy-lean")
    assert [len(planner.plans) for planner in planners.values()] == [1, 1, 1]


@pytest.mark.parametrize("name", MAKERS)
def test_a_candidate_that_the_selector_does_not_know_teaches_it_nothing(name: str) -> None:
    selector, untouched = MAKERS[name](), MAKERS[name]()
    assert isinstance(selector, Overrulable)
    selector.choose(0, NOW, WAITING, HEURISTICS)
    overrule(selector, 0, "somebody-else")
    selector.learn(SCORED)
    for key, array in untouched.online_state().items():
        np.testing.assert_array_equal(selector.online_state()[key], array)


@pytest.mark.parametrize("name", MAKERS)
def test_telling_of_a_decision_nobody_remembers_does_no_harm(name: str) -> None:
    selector = MAKERS[name]()
    overrule(selector, 7, HEURISTICS[0])
    selector.learn(Scored(7, SCORED.outcome, SCORED.j))


def test_a_switch_that_was_overruled_is_no_switch() -> None:
    limit = SwitchLimit(1)
    for time_s in (0.0, 10.0, 20.0):
        limit.hold(Choice("a", "BestPredicted"), time_s)
        assert limit.hold(Choice("b", "BestPredicted"), time_s + 1).candidate == "b"
        limit.overruled("a")
    assert limit.hold(Choice("b", "BestPredicted"), 30.0).candidate == "b"
    assert limit.hold(Choice("a", "BestPredicted"), 31.0).reason == "SwitchLimit"


@dataclass(slots=True)
class Foreign:
    """A selector of another package, made before selectors could be told."""

    name: str = "foreign"
    forgotten: list[int] = field(default_factory=list)

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        return Choice(candidates[0], "BestPredicted")

    def learn(self, scored: Scored) -> None:
        raise AssertionError

    def forget(self, decision: int) -> None:
        self.forgotten.append(decision)

    def online_state(self) -> dict[str, FloatArray]:
        return {}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        return


def test_a_selector_that_cannot_be_told_forgets_the_decision() -> None:
    selector = Foreign()
    overrule(selector, 3, "b")
    assert selector.forgotten == [3]
