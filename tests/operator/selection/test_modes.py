"""`select.mode`: who decides an interval in Off, Shadow, Canary and Active, and what the comparison counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.builders import policy_object
from tests.operator.selection.small import ONLY_COST, START_S, Live, policy
from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.routing import route_of
from tiphys_models.api.selection import SelectSpec
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.shares import block_of
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.protocol import Choice, Scored
from tiphys_operator.selection.chooser import Chooser
from tiphys_operator.selection.memory import load

AMONG = ["energy-lean", "cost-lean", "one-per-host"]
CANARY: dict[str, Any] = {"mode": "Canary", "canary": {"percent": 50, "blockIntervals": 3, "washOutIntervals": 1}}
FREE: dict[str, Any] = {"among": AMONG, "maxSwitchesPerHour": 3600, "marginPercent": 0}


@dataclass
class Stubborn:
    """Names one candidate and keeps what it is told."""

    candidate: str
    name: str = "stubborn"
    asked: int = 0
    observed: int = 0
    committed: dict[int, str] = field(default_factory=dict)
    forgotten: list[int] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)
    error: Exception | None = None
    digest: str = ""

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        self.observed += 1

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Choice(self.candidate, "MyOwnWord")

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        self.committed[decision] = candidate

    def learn(self, scored: Scored) -> None:
        self.learned.append(scored.decision)

    def forget(self, decision: int) -> None:
        self.forgotten.append(decision)

    def online_state(self) -> dict[str, FloatArray]:
        return {}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        return


def live(mode: str = "Active", policy_mode: str = "Active", **select: Any) -> tuple[Live, Stubborn]:
    made = Live(policy_mode=policy_mode, **FREE | {"mode": mode} | select)
    selector = Stubborn("one-per-host")
    made.chooser._selector = selector
    return made, selector


def play(made: Live, intervals: int, first: int = 0) -> list[Any]:
    results = []
    for turn in range(first, first + intervals):
        made.create(2, f"w{turn}")
        results.append(made.interval())
        made.bind("b2s-0")
        made.end(f"w{turn - 1}-")
    return results


def test_active_obeys_the_selector_and_keeps_what_the_rule_would_have_done() -> None:
    made, selector = live()
    results = play(made, 3)
    assert made.memory.active == "one-per-host"
    assert made.memory.status.would == "energy-lean"
    assert {r.decision.chosen.answered.outcome for r in results} == {"learned"}
    assert set(selector.committed.values()) == {"one-per-host"}
    assert made.memory.status.reason == ChoiceReason.BEST_PREDICTED, "words of others are no labels of ours"


def test_shadow_asks_the_selector_and_obeys_the_rule() -> None:
    made, selector = live("Shadow")
    results = play(made, 4)
    assert (made.memory.active, made.memory.chosen, made.memory.status.would) == ("energy-lean", "one-per-host", "one-per-host")
    assert made.memory.status.reason == ChoiceReason.SHADOW
    assert selector.asked == selector.observed == 4
    assert set(selector.committed.values()) == {"energy-lean"}, "it learns from what was really done"
    assert selector.learned
    assert [r.plan.planner for r in results if r.plan is not None] == ["energy-lean"] * 4
    assert made.memory.comparison is None


def test_in_mode_off_the_selector_is_not_asked_and_learns_nothing() -> None:
    made, selector = live("Off")
    play(made, 4)
    assert (made.memory.active, made.memory.status.would, made.memory.status.reason) == ("energy-lean", "", ChoiceReason.NOT_ASKED)
    assert (selector.asked, selector.observed, selector.learned) == (0, 0, [])


def test_the_rule_can_be_named() -> None:
    made, _ = live("Shadow", rule="cost-lean")
    play(made, 1)
    assert made.memory.active == "cost-lean"


def test_without_a_heuristic_the_first_candidate_is_the_rule() -> None:
    _, spec = policy(among=["greedy", "least-connections"], mode="Shadow")
    assert spec.rule_candidate == "greedy"
    _, spec = policy(among=["greedy", "one-per-host"], mode="Shadow")
    assert spec.rule_candidate == "one-per-host"


def test_a_canary_takes_turns_by_blocks_of_the_wall_clock() -> None:
    made, selector = live(**CANARY)
    results = play(made, 60)
    blocks = [block_of("policy-uid", START_S + 10 * (n + 1), 30, 10, 50) for n in range(60)]
    assert [r.decision.group for r in results] == ["treated" if b.obeys else "control" for b in blocks]
    assert [r.plan.planner for r in results] == ["one-per-host" if b.obeys else "energy-lean" for b in blocks]
    assert selector.asked == 60, "the other one is asked all the same"
    assert {made.memory.status.group, made.memory.status.would} in ({"treated", "energy-lean"}, {"control", "one-per-host"})


def test_groups_that_take_turns_are_no_switches() -> None:
    made, _ = live(**CANARY, maxSwitchesPerHour=1)
    results = play(made, 60)
    assert made.memory.status.switches == 0
    assert not any(r.switched for r in results)
    assert made.memory.switches_at_s == []


def test_the_selectors_own_switches_are_limited_in_control_blocks_too() -> None:
    """Else it would change as often as it likes while nobody looks, and begin its next block with the last of them."""
    made, selector = live(**CANARY, maxSwitchesPerHour=2)
    for turn in range(30):
        selector.candidate = AMONG[turn % 3]
        play(made, 1, first=turn)
    assert len(made.memory.switches_at_s) == 2


def test_outcomes_count_for_the_group_that_decided_them_but_not_while_the_other_is_washed_out() -> None:
    made, _ = live(**CANARY)
    play(made, 60)
    made.end()
    made.interval()
    made.interval()
    comparison = made.memory.comparison
    assert comparison is not None
    blocks = [block_of("policy-uid", START_S + 10 * (n + 1), 30, 10, 50) for n in range(62)]
    for group, obeys in (("treated", True), ("control", False)):
        counted = [b for b in blocks[:60] if b.obeys == obeys and not b.washing]
        assert getattr(comparison, group).units == 2 * len(counted)
        assert getattr(comparison, group).answers == sum(b.obeys == obeys for b in blocks)
    shown = made.memory.status.comparison
    assert shown is not None
    assert shown.treated is not None
    assert shown.treated.mean is not None
    assert shown.measure == "weighted cost of a pod: less is better"
    assert (shown.agreement_percent, shown.compared) == (0.0, 62)


def test_a_changed_spec_begins_the_comparison_anew_and_late_outcomes_of_the_old_one_do_not_count() -> None:
    made, _ = live(**CANARY)
    play(made, 20)
    made.route, made.spec = policy(**{**FREE, **CANARY})
    object.__setattr__(made.route, "generation", 4)
    play(made, 1, first=20)
    made.end()
    made.interval()
    comparison = made.memory.comparison
    assert comparison is not None
    assert comparison.subject == "4"
    assert comparison.treated.answers + comparison.control.answers == 2
    assert comparison.treated.units + comparison.control.units <= 2, "those of the new generation"


def test_other_weights_begin_the_comparison_anew_and_late_outcomes_of_the_former_do_not_count() -> None:
    made, selector = live(**CANARY)
    selector.digest = "a" * 64
    play(made, 20)
    selector.digest = "b" * 64
    play(made, 1, first=20)
    made.end()
    made.interval()
    comparison = made.memory.comparison
    assert comparison is not None
    assert comparison.treated.answers + comparison.control.answers == 2
    assert comparison.treated.units + comparison.control.units <= 2, "those of the new weights"


@pytest.mark.parametrize("policy_mode", ["Shadow"])
def test_where_others_place_the_pods_nothing_is_compared(policy_mode: str) -> None:
    made, _ = live(policy_mode=policy_mode, **CANARY)
    play(made, 30)
    comparison = made.memory.comparison
    assert comparison is not None
    assert (comparison.treated.units, comparison.control.units) == (0, 0)


def test_a_restart_in_a_canary_goes_on_with_group_comparison_and_choice() -> None:
    made, _ = live(**CANARY)
    play(made, 20)
    before = made.memory.model_copy(deep=True)
    made.memory = load(made.memory.dump())
    assert made.memory.comparison == before.comparison
    assert (made.memory.chosen, made.memory.active) == (before.chosen, before.active)
    (result,) = play(made, 1, first=20)
    assert result.decision.group in ("treated", "control")


@pytest.mark.parametrize("mode", [{"mode": "Active"}, CANARY])
def test_the_rule_decides_for_a_selector_that_fails(mode: dict[str, Any]) -> None:
    made, selector = live(**mode)
    selector.error = ArithmeticError("on purpose")
    results = play(made, 12)
    due = [r for r in results if r.decision.chosen.answered.outcome == "fallback"]
    assert due
    assert {r.decision.held.candidate for r in results} == {"energy-lean"}
    assert {str(r.reason) for r in due} == {"SelectorFailed"}
    assert {r.decision.chosen.answered.missing for r in results} == {"policy-error"}
    assert selector.committed == {}


def test_a_frozen_policy_keeps_its_candidate_whatever_the_block() -> None:
    made, _ = live(**CANARY, weights=ONLY_COST)
    play(made, 10)
    active = made.memory.active
    made.route, made.spec = policy(**{**FREE, **CANARY, "freeze": True})
    results = play(made, 20, first=10)
    assert {r.decision.held.candidate for r in results} == {active}


def test_a_checkpoint_from_before_there_were_modes_goes_on_with_its_candidate() -> None:
    made = Live(among=AMONG, maxSwitchesPerHour=0)
    play(made, 2)
    active = made.memory.active
    made.memory = load(made.memory.model_copy(update={"chosen": ""}).dump())
    made.chooser = Chooser(made.spec, made.memory.learned)
    made.chooser._selector = Stubborn(next(name for name in AMONG if name != active))
    play(made, 1, first=2)
    assert made.memory.active == active, "no switch is allowed"


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ({"mode": "Canary"}, "canary belongs to mode Canary"),
        ({"canary": {"percent": 10}}, "canary belongs to mode Canary"),
        ({"mode": "Canary", "canary": {"percent": 10, "blockIntervals": 3, "washOutIntervals": 3}}, "must be below blockIntervals"),
        ({"rule": "gobi"}, "rule must be one of among"),
    ],
)
def test_a_select_that_means_nothing_is_refused(select: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        route_of(policy_object(select={"by": "ucb", **select}))


def test_select_is_active_unless_it_says_otherwise() -> None:
    assert SelectSpec.model_validate({"by": "ucb"}).mode == "Active"
