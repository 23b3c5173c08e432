from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import policy_object
from tests.operator.builders import (
    DIGEST,
    FAASRANK,
    NOW,
    NOW_S,
    REFUSED,
    after,
    answers,
    conditions,
    observed,
    planned,
    pods,
    seen,
    status_of,
)
from tests.policy_corpus import GOOD_SPECS
from tiphys_models.api.reasons import ConditionType, Reason
from tiphys_operator.placement.models_found import ModelFound
from tiphys_operator.placement.observation import policy_seen
from tiphys_operator.placement.plan import plan

FUNCTION = {"matchLabels": {"app": "x"}}


def test_a_rule_in_shadow_is_ready_at_once() -> None:
    made = planned(seen())
    assert conditions(made) == {
        "Ready": ("True", "Accepted"),
        "Conflict": ("False", "NoConflict"),
        "Routed": ("Unknown", "NoPods"),
        "ModelLoaded": ("True", "ModelNotNeeded"),
    }
    assert status_of(made).active_policy == "estimator"
    assert made.counts == {("Shadow", "True"): 1}


def test_mode_off_is_not_ready_and_nothing_answers() -> None:
    made = planned(seen(mode="Off"))
    assert conditions(made)["Ready"] == ("False", "Disabled")
    assert status_of(made).active_policy == ""


def test_a_missing_model_degrades_to_the_fallback_and_says_what_to_mount() -> None:
    made = planned(seen(policy="faasrank", model="mine", fallback="greedy", mode="Active"))
    assert conditions(made)["Ready"] == ("False", "DegradedToFallback")
    assert conditions(made)["ModelLoaded"] == ("False", "ModelMissing")
    assert status_of(made).active_policy == "greedy"
    assert "mine.json" in status_of(made).conditions[3].message


def test_a_refused_model_degrades_and_names_the_check() -> None:
    made = planned(seen(policy="faasrank"), models={"faasrank": REFUSED})
    assert conditions(made)["ModelLoaded"] == ("False", "ModelRefused")
    assert "NotFinite" in status_of(made).conditions[3].message


def test_a_refused_model_whose_last_good_version_still_serves_degrades_nothing() -> None:
    spec: dict[str, Any] = {"policy": "faasrank", "mode": "Active"}
    made = planned(seen(**spec), models={"faasrank": REFUSED}, serving={("faasrank", "faasrank", "Active"): DIGEST})
    assert conditions(made)["ModelLoaded"] == ("False", "ModelRefused")
    assert "last good one serves" in status_of(made).conditions[3].message
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert (status_of(made).active_policy, status_of(made).model_digest) == ("faasrank", DIGEST)


def test_weights_for_another_policy_are_refused() -> None:
    made = planned(seen(policy="faasrank"), models={"faasrank": ModelFound("metanet", DIGEST)})
    assert conditions(made)["ModelLoaded"] == ("False", "ModelRefused")
    assert status_of(made).model_digest == ""


def test_a_loaded_model_is_named_by_its_digest() -> None:
    made = planned(seen(policy="faasrank", mode="Active"), models={"faasrank": FAASRANK})
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert conditions(made)["ModelLoaded"] == ("True", "ModelLoaded")
    assert status_of(made).model_digest == DIGEST
    assert status_of(made).active_policy == "faasrank"


def test_pods_of_another_scheduler_are_not_routed_and_counted() -> None:
    made = planned(seen(), pods={"p": [pods(3, ours=True, app="a"), pods(2, ours=False, app="a")]})
    assert conditions(made)["Routed"] == ("False", "NotRouted")
    assert "2 of 5" in status_of(made).conditions[2].message
    assert (status_of(made).matching_pods, status_of(made).routed_pods) == (5, 3)


def test_pods_that_all_name_our_scheduler_are_routed() -> None:
    assert conditions(planned(seen(), pods={"p": [pods(3)]}))["Routed"] == ("True", "PodsRouted")


def test_pods_that_cannot_be_listed_make_routed_unknown_and_keep_the_last_count() -> None:
    policy = seen()
    before = planned(policy, pods={"p": [pods(3)]})
    made = planned(after(policy, before), pod_problems={"default/p": "the operator may not list pods"})
    assert conditions(made)["Routed"] == ("Unknown", "PodsUnknown")
    assert status_of(made).matching_pods == 3


def test_the_less_specific_policy_shows_the_conflict_with_counts_and_stays_ready() -> None:
    general, special = seen("general"), seen("special", selector=FUNCTION)
    groups = {"general": [pods(2, app="x"), pods(5, app="y")], "special": [pods(2, app="x")]}
    made = planned(general, special, pods=groups)
    assert conditions(made, "general")["Conflict"] == ("True", "Overridden")
    assert "special" in status_of(made, "general").conditions[1].message
    assert "2 of 7" in status_of(made, "general").conditions[1].message
    assert conditions(made, "general")["Ready"] == ("True", "Accepted")
    assert conditions(made, "special")["Conflict"] == ("False", "NoConflict")


def test_of_two_equal_policies_the_younger_shows_the_conflict() -> None:
    old, young = seen("z", created="2025-01-01T00:00:00Z"), seen("a", created="2026-01-01T00:00:00Z")
    made = planned(young, old)
    assert conditions(made, "a")["Conflict"][0] == "True"
    assert conditions(made, "z")["Conflict"][0] == "False"


def test_many_winners_are_counted_not_listed() -> None:
    winners = [seen(f"w{index}", selector={"matchLabels": {f"l{index}": "v"}}) for index in range(9)]
    message = status_of(planned(seen("general"), *winners), "general").conditions[1].message
    assert "w0, w1, w2 and 6 more" in message


def test_policies_of_other_namespaces_never_conflict() -> None:
    made = planned(seen("a", "one"), seen("a", "two"))
    assert [w.status.conditions[1].status for w in made.statuses] == ["False", "False"]


@pytest.mark.parametrize("namespace", ["kube-system", "tiphys-system"])
def test_a_policy_where_nothing_is_ever_placed_says_so(namespace: str) -> None:
    made = planned(seen("p", namespace))
    assert conditions(made)["Ready"] == ("False", "InvalidSpec")
    assert namespace in status_of(made).conditions[0].message
    assert status_of(made).active_policy == ""


def test_a_spec_that_slipped_through_is_invalid_and_harms_no_other() -> None:
    made = planned(seen("bad", mode="Sometimes"), seen("good"))
    assert conditions(made, "bad") == {
        "Ready": ("False", "InvalidSpec"),
        "Conflict": ("Unknown", "InvalidSpec"),
        "Routed": ("Unknown", "InvalidSpec"),
        "ModelLoaded": ("Unknown", "InvalidSpec"),
    }
    assert conditions(made, "good")["Ready"] == ("True", "Accepted")
    assert made.counts == {("Invalid", "False"): 1, ("Shadow", "True"): 1}


def test_fallbacks_reported_by_the_extender_degrade_until_it_scores_again() -> None:
    spec: dict[str, Any] = {"mode": "Active", "fallback": "greedy"}
    policy = seen(**spec)
    first = planned(policy, answers={"p": answers(fallback=4, fallback_reason="readings-missing")})
    assert conditions(first)["Ready"] == ("False", "DegradedToFallback")
    assert "readings-missing" in status_of(first).conditions[0].message
    assert status_of(first).active_policy == "greedy"
    quiet = after(policy, first, **spec)
    assert planned(quiet).statuses == ()
    healed = planned(quiet, answers={"p": answers(scored=1)})
    assert conditions(healed)["Ready"] == ("True", "Accepted")


def test_a_new_spec_starts_with_a_clean_slate() -> None:
    policy = seen(mode="Active")
    first = planned(policy, answers={"p": answers(fallback=4)})
    changed = seen("p", "default", status_of(first), generation=2, mode="Active", policy="hashing")
    assert conditions(planned(changed))["Ready"] == ("True", "Accepted")


def test_a_model_that_appears_ends_the_degradation() -> None:
    policy = seen(policy="faasrank", mode="Active")
    degraded = planned(policy)
    made = planned(after(policy, degraded, policy="faasrank", mode="Active"), models={"faasrank": FAASRANK})
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert [e.reason for e in made.events] == ["Accepted", "ModelLoaded"]


def test_answers_are_added_to_what_the_status_holds() -> None:
    policy = seen()
    first = planned(policy, answers={"p": answers(neutral=3, shadow_compared=2, shadow_agreed=1)})
    again = planned(after(policy, first), answers={"p": answers(neutral=1, shadow_compared=1)})
    counted = status_of(again).decisions
    assert (counted.neutral, counted.shadow_agreed, counted.shadow_compared) == (4, 1, 3)


def test_nothing_is_written_when_nothing_changed() -> None:
    policy = seen()
    made = planned(policy)
    again = planned(after(policy, made), now_s=NOW_S + 1000)
    assert again.statuses == ()
    assert again.events == ()


def test_transition_times_move_only_with_the_status() -> None:
    policy = seen()
    first = planned(policy)
    later = planned(after(policy, first), now_s=NOW_S + 60, pods={"p": [pods(1)]})
    times = {c.type: c.last_transition_time for c in status_of(later).conditions}
    assert times["Ready"] == NOW
    assert times["Routed"] == datetime.fromtimestamp(NOW_S + 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_new_generation_is_acknowledged_even_if_nothing_else_changed() -> None:
    policy = seen()
    first = status_of(planned(policy))
    made = planned(seen("p", "default", first, generation=2))
    assert status_of(made).observed_generation == 2
    assert {c.observed_generation for c in status_of(made).conditions} == {2}


def test_a_status_corrupted_by_hand_is_written_anew() -> None:
    policy = seen()
    broken = seen("p")
    object.__setattr__(broken, "status", status_of(planned(policy)).model_copy(update={"active_policy": "nonsense"}))
    assert status_of(planned(broken)).active_policy == "estimator"


def test_what_an_older_schema_pruned_from_a_status_is_written_anew() -> None:
    """After `helm rollback` the API server drops fields that it does not know at the next write of anybody."""
    first = planned(seen(), pods={"p": [pods(3)]})
    whole = status_of(first).model_dump(by_alias=True, mode="json", exclude_defaults=True)
    assert {"conditions", "activePolicy", "observedGeneration", "matchingPods"} <= set(whole)
    for field in whole:
        obj = policy_object("p") | {"status": {name: value for name, value in whole.items() if name != field}}
        obj["metadata"] |= {"generation": 1, "resourceVersion": "7"}
        again = planned(policy_seen(obj), pods={"p": [pods(3)]})
        assert status_of(again).model_dump(by_alias=True, mode="json", exclude_defaults=True) == whole, field


def test_a_policy_that_is_being_deleted_is_left_alone() -> None:
    policy = seen()
    object.__setattr__(policy, "deleting", True)
    assert planned(policy).statuses == ()


def test_pods_that_come_and_go_are_no_news() -> None:
    policy = seen()
    empty = planned(policy)
    routed = planned(after(policy, empty), pods={"p": [pods(3)]})
    assert routed.events == ()
    assert planned(after(policy, routed)).events == ()


def test_events_tell_of_trouble_and_of_its_end_once() -> None:
    policy = seen()
    fine = planned(policy, pods={"p": [pods(1)]})
    assert [(e.reason, e.warning) for e in fine.events] == [("Accepted", False)]
    stray = planned(after(policy, fine), pods={"p": [pods(1, ours=False)]})
    assert [(e.reason, e.warning) for e in stray.events] == [("NotRouted", True)]
    still = planned(after(policy, stray), pods={"p": [pods(2, ours=False)]})
    assert still.events == ()
    back = planned(after(policy, still), pods={"p": [pods(1)]})
    assert [(e.reason, e.warning) for e in back.events] == [("PodsRouted", False)]


_names = st.sampled_from(["a", "b", "c", "d"])


@given(
    specs=st.dictionaries(_names, st.sampled_from(list(GOOD_SPECS.values())) | st.just({"mode": "bad"}), max_size=4),
    models=st.sampled_from([{}, {"faasrank": FAASRANK}, {"faasrank": REFUSED}]),
    counts=st.dictionaries(_names, st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4),
    groups=st.dictionaries(_names, st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=3), max_size=4),
)
def test_a_plan_is_complete_and_settles_in_one_round(
    specs: dict[str, Any], models: dict[str, Any], counts: dict[str, tuple[int, int]], groups: dict[str, list[tuple[int, bool]]]
) -> None:
    policies = [seen(name, **spec) for name, spec in specs.items()]
    parts: dict[str, Any] = {
        "models": models,
        "pods": {name: [pods(count, ours) for count, ours in found] for name, found in groups.items() if name in specs},
    }
    first = planned(*policies, answers={n: answers(scored=s, fallback=f) for n, (s, f) in counts.items()}, **parts)
    assert {w.policy.name for w in first.statuses} == set(specs)
    for write in first.statuses:
        selects = write.policy.route is not None and write.policy.route.spec.select is not None
        hints = write.policy.route is not None and write.policy.route.spec.hints.any
        there = {ConditionType.SELECTING: selects, ConditionType.HINTING: hints}
        assert [c.type for c in write.status.conditions] == [k for k in ConditionType if there.get(k, True)]
        assert all(c.reason in set(Reason) and c.message and len(c.message) <= 1024 for c in write.status.conditions)
        assert write.status.routed_pods <= write.status.matching_pods
    assert sum(first.counts.values()) == len(specs)
    second = plan(observed(*[after(p, first, **specs[p.name]) for p in policies], **parts), "tiphys-system", "tiphys")
    assert second.statuses == ()
    assert second.events == ()


@pytest.mark.parametrize(("policy", "objective"), [("warm-first", "cost"), ("lifetimes", "both"), ("greedy", "both")])
def test_a_policy_that_cannot_judge_by_its_objective_is_not_ready_and_says_which_can(policy: str, objective: str) -> None:
    made = planned(seen(policy=policy, objective=objective, fallback="greedy", mode="Active"))
    assert conditions(made)["Ready"] == ("False", "ObjectiveUnsupported")
    assert status_of(made).active_policy == "greedy"
    assert "estimator" in status_of(made).conditions[0].message


@pytest.mark.parametrize(
    ("spec", "judge"),
    [
        ({"objective": "cost"}, "lifetimes"),
        ({"objective": "both"}, "estimator"),
        ({"objective": "cost", "policy": "estimator"}, "lifetimes"),
    ],
)
def test_status_names_who_judges_by_the_objective(spec: dict[str, Any], judge: str) -> None:
    made = planned(seen(mode="Active", **spec))
    assert conditions(made)["Ready"] == ("True", "Accepted")
    assert status_of(made).active_policy == judge


def test_status_names_the_rule_that_answers_without_processor_time_until_something_else_is_reported() -> None:
    spec: dict[str, Any] = {"mode": "Active", "policy": "estimator"}
    policy = seen(**spec)
    blind = planned(policy, answers={"p": answers(fallback=3, fallback_reason="container-cpu-missing")})
    assert status_of(blind).active_policy == "warm-first-waits"
    assert "container-cpu-missing" in status_of(blind).conditions[0].message
    quiet = after(policy, blind, **spec)
    assert planned(quiet).statuses == ()
    healed = planned(quiet, answers={"p": answers(scored=1)})
    assert status_of(healed).active_policy == "estimator"
