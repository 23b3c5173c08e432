"""Placement where an autoscaler moves pods to close nodes: only pods that it must not evict keep one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import pod, request, state, view
from tiphys_models.base.facts import pod_facts
from tiphys_models.placement.registry import make_policy
from tiphys_models.placement.scores import ScoreCache
from tiphys_models.placement.state import PlacementState

HOUR_S = 3600.0
BEGIN_S = 1_000_000.0


def scores(filled: PlacementState, **wanted: object) -> list[float]:
    policy = make_policy("consolidation-aware")
    return [float(x) for x in policy.score(view(filled, request("new", **wanted)), filled.memory())]


def taught() -> PlacementState:
    """Three nodes, and pods of two applications that were seen to run for five minutes and for twelve hours."""
    filled = state(3)
    filled.tick(BEGIN_S)
    scores(filled)
    for function, life_s in (("default/brief", 300.0), ("default/long", 12 * HOUR_S)):
        for i in range(40):
            filled.bound(pod(f"{function}-{i}", function=function, node="n2", scheduled_s=BEGIN_S), BEGIN_S)
        filled.tick(BEGIN_S + life_s)
        for i in range(40):
            filled.ran(f"{function}-{i}", BEGIN_S + life_s)
    filled.tick(BEGIN_S + 13 * HOUR_S)
    filled.expire(BEGIN_S + 13 * HOUR_S)
    return filled


@pytest.mark.parametrize(
    ("annotations", "protected"),
    [
        ({}, False),
        ({"karpenter.sh/do-not-disrupt": "true"}, True),
        ({"karpenter.sh/do-not-disrupt": "90s"}, True),
        ({"karpenter.sh/do-not-disrupt": "false"}, False),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, True),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, False),
    ],
)
def test_a_pod_is_protected_that_autoscalers_must_not_evict(annotations: dict[str, str], protected: bool) -> None:
    assert pod_facts({"metadata": {"name": "a", "annotations": annotations}}).protected is protected


def test_a_node_in_use_is_preferred_and_among_those_the_fullest() -> None:
    filled = taught()
    now_s = BEGIN_S + 13 * HOUR_S
    filled.bound(pod("a", node="n0", cpu_milli=500), now_s)
    filled.bound(pod("b", node="n1", cpu_milli=2000), now_s)
    found = scores(filled)
    assert np.argmax(found) == 1
    assert np.argmin(found) == 2


def test_a_protected_pod_that_stays_long_goes_where_another_one_holds_the_node_already() -> None:
    filled = taught()
    now_s = BEGIN_S + 13 * HOUR_S
    filled.bound(pod("a", function="default/long", node="n0", cpu_milli=500, protected=True), now_s)
    filled.bound(pod("b", function="default/long", node="n1", cpu_milli=600), now_s)  # may be moved: it holds nothing
    assert np.argmax(scores(filled, function="default/long", protected=True)) == 0
    assert np.argmax(scores(filled, function="default/long", protected=False)) == 1


def test_a_pod_that_is_protected_from_now_on_counts_from_now_on() -> None:
    filled = taught()
    now_s = BEGIN_S + 13 * HOUR_S
    filled.bound(pod("a", function="default/long", node="n0", cpu_milli=500), now_s)
    before = scores(filled, function="default/long", protected=True)
    filled.bound(pod("a", function="default/long", node="n0", cpu_milli=500, protected=True), now_s)
    after = scores(filled, function="default/long", protected=True)
    assert after[0] > before[0] + 0.2
    assert after[1:] == before[1:]


def test_kept_scores_of_a_pod_that_may_be_moved_are_not_those_of_a_protected_one() -> None:
    filled = taught()
    cache, policy = ScoreCache(), make_policy("consolidation-aware")
    rows = filled.nodes.rows(["n0", "n1", "n2"])
    moved, protected = (
        cache.score(policy, filled, request("new", function="default/long", protected=protected), rows) for protected in (False, True)
    )
    assert (moved > protected).all()
