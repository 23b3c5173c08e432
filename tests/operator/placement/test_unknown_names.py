"""Names that nobody has: a condition says which and what there is, and the fallback is what is active."""

from __future__ import annotations

from typing import Any

import pytest

from tests.foreign import brought
from tests.operator.builders import conditions, planned, seen, status_of
from tiphys_models.selection.planners.registry import REGISTRY as PLANNERS
from tiphys_models.selection.selectors.registry import REGISTRY as SELECTORS
from tiphys_operator.placement.observation import SelectionSeen
from tiphys_operator.placement.plan import Plan

SERVED = frozenset({"warm-first", "greedy", "acme-roomiest"})


def message(made: Plan, kind: str) -> str:
    return next(c.message for c in status_of(made).conditions if c.type == kind)


def test_a_policy_that_no_extender_has_is_named_with_those_there_are() -> None:
    made = planned(seen(policy="acme-fastest", fallback="greedy", mode="Active"), served_policies=SERVED)
    assert conditions(made)["Ready"] == ("False", "UnknownPolicy")
    assert message(made, "Ready").startswith("greedy answers: the extenders have no placement policy called 'acme-fastest'")
    assert "acme-roomiest, greedy, warm-first" in message(made, "Ready")
    assert status_of(made).active_policy == "greedy"
    assert [event.reason for event in made.events] == ["UnknownPolicy"]


def test_a_policy_that_every_extender_has_is_accepted_and_needs_no_model() -> None:
    made = planned(seen(policy="acme-roomiest", mode="Shadow"), served_policies=SERVED)
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert conditions(made)["ModelLoaded"] == ("True", "ModelNotNeeded")
    assert status_of(made).active_policy == "acme-roomiest"


@pytest.mark.parametrize("policy", ["warm-first", "acme-fastest"])
def test_while_no_extender_can_be_asked_nothing_is_called_unknown(policy: str) -> None:
    assert conditions(planned(seen(policy=policy, mode="Active")))["Ready"] == ("True", "Accepted")


def test_our_own_names_are_never_unknown() -> None:
    made = planned(seen(policy="round-robin", mode="Active"), served_policies=frozenset({"greedy"}))
    assert conditions(made)["Ready"] == ("True", "Accepted")


def selecting(by: str, *among: str, mode: str = "Active") -> Plan:
    spec: dict[str, Any] = {"select": {"by": by, "among": [*among]}, "mode": mode}
    return planned(seen(**spec), selections={"default/p": SelectionSeen("", 0, None, "nobody has chosen")})


@pytest.mark.parametrize("by", ["acme-thrifty", "metanet-paper"])
def test_a_selector_that_nobody_has_or_that_only_tables_play_is_named(by: str) -> None:
    made = selecting(by, "cost-lean", "greedy")
    assert conditions(made)["Selecting"] == ("False", "UnknownPolicy")
    assert f"{by!r}; there are metanet, dqn, ucb, preview" in message(made, "Selecting")


def test_candidates_that_nobody_has_are_left_out() -> None:
    made = selecting("ucb", "cost-lean", "acme-spread", "first-fit", "greedy")
    assert conditions(made)["Selecting"] == ("True", "UnknownPolicy")
    assert message(made, "Selecting").startswith("chosen among the other 2: nobody here has a candidate called 'acme-spread', 'first-fit'")


def test_without_any_candidate_the_fallback_answers() -> None:
    made = selecting("ucb", "acme-spread", "acme-other")
    assert conditions(made)["Selecting"] == ("False", "UnknownPolicy")
    assert conditions(made)["Ready"] == ("False", "NotChosenYet")


def test_names_of_installed_packages_are_known() -> None:
    with brought(PLANNERS, acme_spread="acme.planner:Spread"), brought(SELECTORS, acme_thrifty="acme.selector:Thrifty"):
        made = selecting("acme-thrifty", "cost-lean", "acme-spread")
    assert conditions(made)["Selecting"] != ("False", "UnknownPolicy")
    assert "UnknownPolicy" not in {reason for _, reason in conditions(made).values()}


def test_a_policy_that_is_off_says_so_first() -> None:
    assert conditions(selecting("acme-thrifty", "cost-lean", "greedy", mode="Off"))["Selecting"] == ("False", "Disabled")
