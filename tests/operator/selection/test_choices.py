"""Which candidate an interval leaves in charge: the best predicted, unless margin, limit, freeze or an empty cluster hold another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.operator.selection.small import ONLY_COST, ONLY_ENERGY, START_S, Live, node, policy
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.selectors.hold import SwitchRules, hold
from tiphys_models.selection.selectors.look_ahead import LookAhead
from tiphys_models.selection.selectors.protocol import Choice
from tiphys_operator.selection.chooser import Chooser
from tiphys_operator.selection.prices import PriceTable


def test_another_load_makes_another_candidate_the_best() -> None:
    """A small node is cheapest for one pod; several at once draw less together on a large one. The choice follows the load and comes back."""
    live = Live(
        *(node(f"b2s-{i}") for i in range(12)), node("b8ms-0", "B8ms"), among=["cost-lean", "energy-lean"],
        weights={"cost": 1, "energy": 1, "response": 0, "sla": 0},
    )  # fmt: skip
    seen = []
    for turn, count in enumerate((1, 6, 1)):
        live.pods.clear()
        live.create(count, f"w{turn}", cores=0.4)
        live.interval(600.0)  # long enough for the arrivals before to be forgotten
        seen.append(live.memory.active)
    assert seen == ["cost-lean", "energy-lean", "cost-lean"]
    status = live.memory.status
    assert (status.switches, len(live.memory.switches_at_s)) == (2, 2)
    assert status.last_switch is not None
    assert (status.last_switch.former, status.last_switch.to, status.last_switch.reason) == ("energy-lean", "cost-lean", "BestPredicted")
    assert {c.candidate for c in status.predicted_cost} == {"cost-lean", "energy-lean"}


def test_nothing_to_place_changes_nothing() -> None:
    live = Live()
    first = live.interval()
    assert (first.reason, live.memory.active) == (ChoiceReason.FIRST, "cost-lean")
    again = live.interval()
    assert (again.reason, again.switched, live.memory.accounts) == (ChoiceReason.NOTHING_TO_PLACE, False, {})


def test_without_a_usable_node_the_candidate_stays_and_its_plan_is_empty() -> None:
    live = Live()
    live.create(2)
    live.interval()
    active = live.memory.active
    live.bind("b2s-0")
    live.nodes = {name: replace(one, usable=False) for name, one in live.nodes.items()}
    live.create(1, "late")
    result = live.interval()
    assert (result.reason, live.memory.active) == (ChoiceReason.NO_USABLE_NODE, active)
    assert result.plan is not None
    assert result.plan.functions == []
    assert live.memory.accounts[1].usd > 0  # what runs on cordoned nodes is still paid
    live.nodes = {name: replace(one, usable=True) for name, one in live.nodes.items()}
    back = live.interval().plan
    assert back is not None
    assert back.functions


def test_a_cluster_without_nodes_is_looked_at_all_the_same() -> None:
    live = Live()
    live.nodes.clear()
    live.create(2)
    assert live.interval().reason == ChoiceReason.FIRST
    assert live.interval().reason == ChoiceReason.NO_USABLE_NODE


def test_a_candidate_that_is_taken_off_the_list_gives_way_and_what_it_decided_is_still_settled() -> None:
    live = Live(among=["cost-lean", "one-per-host"], weights=ONLY_COST)
    live.create(2)
    live.interval()
    former = live.memory.active
    live.bind("b2s-0")
    live.interval()
    rest = sorted({"cost-lean", "one-per-host", "energy-lean"} - {former})
    live.route, live.spec = policy(among=rest, maxSwitchesPerHour=0, marginPercent=100)
    live.chooser = Chooser(live.spec)
    live.create(2, "q")
    result = live.interval()
    assert result.switched
    assert live.memory.active in rest
    live.end()
    live.interval()
    assert (live.memory.status.measured_candidate, live.memory.status.measured_interval) == (former, 1)


def test_frozen_policies_keep_their_candidate_and_learn_nothing() -> None:
    live = Live(weights=ONLY_COST)
    live.create(2)
    live.interval()
    active = live.memory.active
    live.route, live.spec = policy(freeze=True, weights=ONLY_ENERGY)
    live.chooser = Chooser(live.spec)
    live.bind("b2s-0")
    live.end()
    live.create(2, "q")
    frozen = live.interval()
    assert (frozen.reason, live.memory.active, frozen.learned) == (ChoiceReason.FROZEN, active, ())


def test_a_placement_policy_is_a_candidate_without_a_plan() -> None:
    live = Live(among=["least-connections", "greedy"])
    live.create(2)
    result = live.interval()
    assert live.memory.active in ("least-connections", "greedy")
    assert result.plan is None
    assert live.memory.status.plan == ""


CHOICE = Choice("b", "BestPredicted", {"a": 10.0, "b": 9.0})


@pytest.mark.parametrize(
    ("active", "margin", "per_hour", "wanted"),
    [
        ("", 50, 0, ("b", ChoiceReason.BEST_PREDICTED)),
        ("a", 5, 1, ("b", ChoiceReason.BEST_PREDICTED)),
        ("a", 10, 1, ("a", ChoiceReason.WITHIN_MARGIN)),
        ("a", 5, 0, ("a", ChoiceReason.SWITCH_LIMIT)),
        ("gone", 50, 0, ("b", ChoiceReason.BEST_PREDICTED)),
    ],
)
def test_margin_and_limit_hold_the_active_candidate(active: str, margin: int, per_hour: int, wanted: tuple[str, ChoiceReason]) -> None:
    held = hold(CHOICE, active, ("a", "b"), SwitchRules(margin, per_hour), [], START_S)
    assert (held.candidate, held.reason) == wanted


@pytest.mark.parametrize("reason", [ChoiceReason.FALLBACK, ChoiceReason.EXPLORING])
def test_a_selector_that_distrusts_itself_or_explores_is_not_held_by_its_own_predictions(reason: ChoiceReason) -> None:
    dear = Choice("b", reason, {"a": 9.0, "b": 10.0})
    assert hold(dear, "a", ("a", "b"), SwitchRules(5, 1), [], START_S).candidate == "b"
    assert hold(dear, "a", ("a", "b"), SwitchRules(5, 0), [], START_S).reason == ChoiceReason.SWITCH_LIMIT


def test_switches_of_more_than_an_hour_ago_do_not_count() -> None:
    assert hold(CHOICE, "a", ("a", "b"), SwitchRules(0, 1), [START_S - 3601], START_S).candidate == "b"
    assert hold(CHOICE, "a", ("a", "b"), SwitchRules(0, 1), [START_S - 3599], START_S).candidate == "a"


@pytest.mark.parametrize("by", ["metanet", "dqn"])
def test_learned_selectors_serve_nodes_of_any_type(by: str) -> None:
    """What they read of a state names no type; plans, previews and bills use cores, price and power curve of whatever there is."""
    among = ["cost-lean", "gobi", "one-per-host"]
    live = Live(*(node(f"m-{i}", "m7") for i in range(3)), node("g-0", "c9"), by=by, among=among)
    live.create(3, cores=0.4)
    plan = live.interval().plan
    assert plan is not None
    assert live.memory.active in among
    assert {c.candidate for c in live.memory.status.predicted_cost} == set(among)
    assert sum(n.slots for f in plan.functions for n in f.nodes) >= 3


def test_metanet_predicts_with_the_prices_of_the_nodes_that_are_there() -> None:
    costs = []
    for usd in (0.1, 1.0):
        live = Live(node("m-0", "m7"), by="metanet", among=["cost-lean", "one-per-host"], weights=ONLY_COST)
        live.prices = PriceTable({"m7": (usd, None)})
        live.create(2)
        live.interval()
        costs.append({c.candidate: c.cost for c in live.memory.status.predicted_cost}["cost-lean"])
    assert costs[1] > 3 * costs[0]


@pytest.mark.parametrize("by", ["metanet", "dqn", "ucb"])
def test_every_selector_chooses_from_a_live_cluster_and_survives_a_restart(by: str) -> None:
    live = Live(by=by, among=["cost-lean", "one-per-host", "energy-lean"])
    for turn in range(4):
        live.create(2, f"t{turn}")
        live.interval()
        live.bind("b2s-0")
        live.now_s += 5.0
        live.end()
    assert live.memory.status.learned > 0
    again = Chooser(live.spec, live.memory.learned)
    assert again.online_state() == live.memory.learned
    assert len(live.memory.learned) < 900_000


class Recorder:
    """A selector, and what it was asked and told."""

    def __init__(self, selector: Any) -> None:
        self._selector = selector
        self.asked: list[tuple[int, tuple[str, ...]]] = []
        self.told: dict[int, str] = {}

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        self.asked.append((decision, candidates))
        choice: Choice = self._selector.choose(decision, state, tasks, candidates)
        return choice

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        self.told[decision] = candidate
        self._selector.commit(decision, choice, candidate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def test_a_selector_is_asked_once_a_decision_and_told_what_was_done_instead() -> None:
    """UCB wants to try one candidate after the other; no switch is allowed."""
    live = Live(by="ucb", among=["cost-lean", "one-per-host", "energy-lean"], maxSwitchesPerHour=0)
    recorder = Recorder(live.chooser._selector)
    live.chooser._selector = recorder
    for turn in range(4):
        live.create(2, f"w{turn}")
        live.interval()
    first = live.memory.active
    assert [decision for decision, _ in recorder.asked] == [1, 2, 3, 4]
    assert {candidates for _, candidates in recorder.asked} == {("cost-lean", "one-per-host", "energy-lean")}
    assert recorder.told == dict.fromkeys((1, 2, 3, 4), first)


@dataclass(slots=True)
class Counting:
    """A planner that counts its plans."""

    planner: Planner
    made: int = 0

    @property
    def name(self) -> str:
        return self.planner.name

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        self.made += 1
        return self.planner.assign(state, tasks, seed)


def test_a_plan_that_was_looked_at_is_not_made_again_and_is_the_same() -> None:
    live, plain = Live(), Live()
    selector = live.chooser._selector
    assert isinstance(selector, LookAhead)
    counting = {name: Counting(planner) for name, planner in selector._planners.items()}
    selector._planners = dict(counting)
    live.chooser._planners = dict(counting)
    plans = []
    for one in (live, plain):
        one.create(3)
        if one is plain:
            one.chooser._selector = Unhelpful(one.chooser._selector)
        plans.append(one.interval().plan)
    assert [planner.made for planner in counting.values()] == [1, 1, 1]
    assert plans[0] == plans[1]


class Unhelpful(Recorder):
    """A selector that keeps its plans to itself."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        return replace(super().choose(decision, state, tasks, candidates), plans={})
