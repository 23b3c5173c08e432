"""`spec.select`: names agree with the registries, the schema excludes what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import policy_object
from tiphys_models.api.routing import route_of
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.api.selection import CANDIDATES, PlannerName, SelectorName, is_planner
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.registry import PolicyName
from tiphys_models.selection.planners.registry import candidates
from tiphys_models.selection.selectors.registry import entries, servable_names


def test_names_in_the_api_are_those_of_the_registries() -> None:
    assert tuple(PlannerName) == candidates()
    assert set(SelectorName) == {entry.name for entry in entries()} - {"metanet-paper"}
    assert set(CANDIDATES) == set(candidates()) | set(PolicyName)
    assert not any(is_planner(name) for name in PolicyName)
    assert all(is_planner(name) for name in PlannerName)
    assert set(SelectorName) == set(servable_names())


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"policy": "greedy", "select": {"by": "ucb"}}, "policy and select"),
        ({"model": "m", "select": {"by": "ucb"}}, "model belongs"),
        ({"select": {"by": "No_Body"}}, "spec.select.by"),
        ({"select": {"by": "ucb", "among": ["greedy"]}}, "spec.select.among"),
        ({"select": {"by": "ucb", "among": ["greedy", "greedy"]}}, "twice"),
        ({"select": {"by": "ucb", "among": ["greedy", "first fit"]}}, "spec.select.among"),
        ({"select": {"by": "ucb", "intervalSeconds": 1}}, "spec.select.intervalSeconds"),
        ({"select": {"by": "ucb", "weights": {"cost": 0, "energy": 0, "response": 0, "sla": 0}}}, "at least one weight"),
    ],
)
def test_specs_that_make_no_sense_are_refused(spec: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidInput, match=where):
        parse_spec({"spec": spec})


def test_names_of_other_packages_are_taken_whether_they_are_known_here_or_not() -> None:
    select = parse_spec({"spec": {"select": {"by": "acme-chooser", "among": ["acme-packer", "greedy"]}}}).select
    assert select is not None
    assert (select.by, select.among) == ("acme-chooser", ["acme-packer", "greedy"])


def test_a_select_needs_no_more_than_who_chooses() -> None:
    select = parse_spec({"spec": {"select": {"by": "preview"}}}).select
    assert select is not None
    assert (select.among, select.interval_seconds, select.freeze) == (["cost-lean", "energy-lean", "one-per-host"], 10, False)


def test_only_a_status_of_this_generation_names_who_decides() -> None:
    obj = policy_object(select={"by": "preview"}) | {"status": {"activePolicy": "one-per-host", "observedGeneration": 1}}
    assert route_of(obj).deciding == "one-per-host"
    obj["metadata"]["generation"] = 2
    assert route_of(obj).deciding == ""
    assert route_of(policy_object(policy="greedy")).deciding == "greedy"
