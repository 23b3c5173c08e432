from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import policy_object
from tiphys_models.api.routing import Router, route_of
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.shares import in_share


def router(*objects: dict[str, Any], own: str = "") -> Router:
    return Router((route_of(o) for o in objects), own)


def test_the_default_is_harmless() -> None:
    spec = parse_spec(policy_object())
    assert (spec.mode, str(spec.policy), str(spec.fallback)) == ("Shadow", "estimator", "warm-first")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"mode": "Canary"}, "set both or neither"),
        ({"canary": {"percent": 5}}, "set both or neither"),
        ({"mode": "Canary", "canary": {"percent": 100}}, "spec.canary.percent"),
        ({"fallback": "faasrank"}, "must be a rule"),
        ({"policy": "hashing", "model": "m"}, "belongs to a learned policy"),
        ({"policy": "The Best"}, "spec.policy"),
        ({"mode": "active"}, "spec.mode"),
        ({"guardrails": {"maxNodeSharePercent": 0}}, "spec.guardrails.maxNodeSharePercent"),
    ],
)
def test_a_bad_spec_says_which_field_and_why(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_spec(policy_object(**spec))


def test_a_learned_policy_needs_the_model_of_its_own_name_unless_told_otherwise() -> None:
    assert parse_spec(policy_object(policy="faasrank")).model_name == "faasrank"
    assert parse_spec(policy_object(policy="faasrank", model="mine")).model_name == "mine"
    assert parse_spec(policy_object(policy="greedy")).model_name is None


def test_a_policy_decides_only_in_its_own_namespace() -> None:
    routes = router(policy_object("p", "a"))
    assert routes.route("a", {}) is not None
    assert routes.route("b", {}) is None


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "tiphys-system"])
def test_the_clusters_own_pods_and_ours_are_never_routed(namespace: str) -> None:
    assert router(policy_object("p", namespace), own="tiphys-system").route(namespace, {}) is None


def test_the_more_specific_policy_wins_then_the_older_then_the_first_by_name() -> None:
    general = policy_object("general", created="2020-01-01T00:00:00Z")
    old = policy_object("z-old", created="2025-01-01T00:00:00Z", selector={"matchLabels": {"app": "x"}})
    new_b = policy_object("b", created="2026-01-01T00:00:00Z", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    new_a = policy_object("a", created="2026-01-01T00:00:00Z", selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    routes = router(general, new_b, new_a, old)
    winner = routes.route("default", {"app": "x"})
    assert winner is not None
    assert winner.name == "z-old"
    other = routes.route("default", {"app": "y"})
    assert other is not None
    assert other.name == "a"


def test_conflicts_are_named_unless_the_selectors_exclude_each_other() -> None:
    x = policy_object("x", selector={"matchLabels": {"app": "x"}})
    y = policy_object("y", selector={"matchLabels": {"app": "y"}})
    no_app = policy_object("none", selector={"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})
    not_x = policy_object("not-x", selector={"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]})
    everything = policy_object("all")
    routes = router(x, y, no_app, not_x, everything)
    conflicts = {r.name: {c.name for c in routes.conflicts_of(r)} for r in routes}
    assert conflicts["x"] == set()
    assert conflicts["y"] <= {"not-x"}
    assert conflicts["none"] <= {"not-x"}
    assert conflicts["all"] == {"x", "y", "none", "not-x"}


def test_a_canary_share_is_stable_and_about_right() -> None:
    inside = [f"uid-{i}" for i in range(5000) if in_share(f"uid-{i}", 20)]
    assert 850 < len(inside) < 1150
    assert all(in_share(uid, 50) for uid in inside)  # a growing share keeps who was in it


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]), max_size=2))
def test_selectors_mean_what_kubernetes_means(labels: dict[str, str]) -> None:
    def matches(**spec: Any) -> bool:
        return route_of(policy_object(selector=spec)).selector.matches(labels)

    assert matches()
    assert matches(matchLabels={"a": "1"}) == (labels.get("a") == "1")
    assert matches(matchExpressions=[{"key": "a", "operator": "NotIn", "values": ["1"]}]) == (labels.get("a") != "1")
    assert matches(matchExpressions=[{"key": "a", "operator": "Exists"}]) == ("a" in labels)
    assert matches(matchExpressions=[{"key": "a", "operator": "DoesNotExist"}]) == ("a" not in labels)
