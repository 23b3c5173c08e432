"""What a policy with `select` shows: its candidate, why, and news of switches told once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.operator.builders import after, conditions, planned, seen, status_of
from tiphys_models.api.selection import PredictedCost, SelectionStatus, Switch
from tiphys_operator.placement.observation import SelectionSeen

SELECT: dict[str, Any] = {"select": {"by": "preview"}, "mode": "Active"}
SWITCH = Switch(
    former="cost-lean", to="energy-lean", reason="BestPredicted", message="predicted cost 1 against 2", at="2027-01-15T08:00:00Z"
)
STATUS = SelectionStatus(
    interval=7, reason="BestPredicted", predicted_cost=[PredictedCost(candidate="energy-lean", cost=1.0)], last_switch=SWITCH, plan="p"
)
CHOSEN = SelectionSeen("energy-lean", 1, STATUS)


def test_the_candidate_is_active_and_its_reasons_stand_in_the_status() -> None:
    made = planned(seen(**SELECT), selections={"default/p": CHOSEN})
    status = status_of(made)
    assert (status.active_policy, status.selection) == ("energy-lean", STATUS)
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert conditions(made)["Selecting"] == ("True", "Selecting")
    assert next(c.message for c in status.conditions if c.type == "Ready") == "energy-lean decides"


def test_a_switch_is_told_once() -> None:
    policy = seen(**SELECT)
    first = planned(policy, selections={"default/p": CHOSEN})
    told = [event.message for event in first.events if event.reason == "Switched"]
    assert told == ["cost-lean gives way to energy-lean (BestPredicted): predicted cost 1 against 2"]
    again = planned(after(policy, first, **SELECT), selections={"default/p": CHOSEN})
    assert (again.events, again.statuses) == ((), ())


def test_a_choice_made_for_another_spec_is_not_obeyed() -> None:
    made = planned(seen(generation=2, **SELECT), selections={"default/p": CHOSEN})
    assert status_of(made).active_policy == ""
    assert conditions(made)["Ready"] == ("False", "NotChosenYet")
    assert conditions(made)["Selecting"] == ("Unknown", "NotChosenYet")


def test_a_new_leader_keeps_what_the_last_one_chose_until_it_has_looked() -> None:
    policy = seen(**SELECT)
    chosen = after(policy, planned(policy, selections={"default/p": CHOSEN}), **SELECT)
    assert planned(chosen).statuses == ()
    changed = replace(chosen, generation=2)
    assert status_of(planned(changed)).active_policy == ""


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (replace(CHOSEN, problem="ArtifactRefused: Missing"), ("False", "SelectorUnavailable")),
        (SelectionSeen("", 0, None, "/api/v1/pods: 403; the operator needs list and watch"), ("False", "ClusterUnknown")),
        (replace(CHOSEN, frozen=True), ("False", "SelectionFrozen")),
        (replace(CHOSEN, unpriced=("m7.huge",)), ("True", "PricesMissing")),
        (replace(CHOSEN, unjudged=("greedy",)), ("True", "CandidatesUnknown")),
    ],
)
def test_what_keeps_it_from_choosing_is_a_condition(found: SelectionSeen, wanted: tuple[str, str]) -> None:
    assert conditions(planned(seen(**SELECT), selections={"default/p": found}))["Selecting"] == wanted


def test_in_mode_off_there_is_no_active_policy() -> None:
    made = planned(seen(**(SELECT | {"mode": "Off"})), selections={"default/p": CHOSEN})
    assert status_of(made).active_policy == ""
    assert conditions(made)["Selecting"] == ("False", "Disabled")


@pytest.mark.parametrize(
    ("changes", "wanted", "told"),
    [
        ({"reason": "NotAsked"}, ("False", "Disabled"), "select.mode is Off: energy-lean decides and the selector is not asked"),
        ({"reason": "Shadow", "would": "cost-lean"}, ("True", "Selecting"), "select.mode is Shadow: energy-lean decides"),
        ({"reason": "Control", "group": "control"}, ("True", "Selecting"), "select.mode is Canary: selector and rule take turns"),
    ],
)
def test_selecting_says_whose_turn_it_is(changes: dict[str, str], wanted: tuple[str, str], told: str) -> None:
    made = planned(seen(**SELECT), selections={"default/p": replace(CHOSEN, status=STATUS.model_copy(update=changes))})
    assert conditions(made)["Selecting"] == wanted
    assert next(c.message for c in status_of(made).conditions if c.type == "Selecting").startswith(told)
