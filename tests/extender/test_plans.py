"""Policies with `select`: the extender obeys what status names for exactly this spec, and scores by the published plan."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.builders import pod, policy_object
from tests.extender.harness import Extender
from tiphys_extender.placement.plans import PlanObjects
from tiphys_models.api.reasons import FallbackReason
from tiphys_models.base.errors import InvalidInput

SLOTS = {"default/f": [("n2", 1), ("n0", 2)]}


def selecting(active: str = "cost-lean", observed: int = 1, **spec: Any) -> dict[str, Any]:
    among = ["cost-lean", "one-per-host", "least-connections", "faasrank"]
    obj = policy_object("sel", mode="Active", select={"by": "preview", "among": among}, **spec)
    return obj | {"status": {"activePolicy": active, "observedGeneration": observed}}


def plan(slots: dict[str, list[tuple[str, int]]], until_s: float = 4e9, generation: int = 1, uid: str = "uid-sel") -> dict[str, Any]:
    return {
        "metadata": {"name": "sel", "namespace": "default", "uid": "plan-uid"},
        "spec": {
            "policyUid": uid, "policyGeneration": generation, "planner": "cost-lean", "interval": 7,
            "validUntil": datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "functions": [
                {"function": name, "nodes": [{"node": node, "slots": count} for node, count in nodes]} for name, nodes in slots.items()
            ],
        },
    }  # fmt: skip


class Obeying(Extender):
    """An extender with one policy that selects."""

    def __init__(self, active: str = "cost-lean", **parts: Any) -> None:
        super().__init__(nodes=4, policies=[selecting(active, **parts)])
        self.plans = PlanObjects(self.world)

    def winner(self, uid: str) -> str:
        answer = self.ask(uid)
        return max(answer, key=lambda name: answer[name])


def test_pods_go_where_the_plan_has_slots_in_its_order() -> None:
    extender = Obeying()
    extender.plans.put(plan(SLOTS))
    assert [extender.winner(f"u{i}") for i in range(3)] == ["n2", "n0", "n0"]
    assert extender.last["outcome"] == "scored"
    assert extender.last["policyName"] == "cost-lean"
    assert extender.counted("policy_answers_total", policy="cost-lean") == 3


def test_a_plan_without_a_free_slot_gives_way_to_the_fallback() -> None:
    extender = Obeying()
    extender.plans.put(plan({"default/f": [("n1", 1)]}))
    extender.ask("a")
    extender.ask("b")
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", FallbackReason.PLAN_EXHAUSTED)
    assert extender.counted("fallback_answers_total", reason="plan-exhausted") == 1


def test_slots_count_bound_pods_of_the_function_and_open_again_when_one_ends() -> None:
    extender = Obeying()
    extender.plans.put(plan({"default/f": [("n1", 1), ("n3", 1)]}))
    extender.state.bound(pod("bound", node="n1"), extender.clock.now_s())
    extender.state.bound(pod("other", node="n3", function="default/g"), extender.clock.now_s())
    assert extender.winner("a") == "n3"
    extender.state.finished("bound")
    assert extender.winner("b") == "n1"


def test_two_replicas_with_the_same_plan_and_pods_give_the_same_answers() -> None:
    one, two = Obeying(), Obeying()
    for extender in (one, two):
        extender.plans.put(plan({"default/f": [("n1", 1), ("n3", 2), ("n0", 1)]}))
        extender.state.bound(pod("bound", node="n1"), extender.clock.now_s())
    assert [one.ask(f"u{i}") for i in range(5)] == [two.ask(f"u{i}") for i in range(5)]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (None, FallbackReason.PLAN_MISSING),
        (plan(SLOTS, until_s=1.0), FallbackReason.PLAN_EXPIRED),
        (plan(SLOTS, generation=2), FallbackReason.PLAN_MISSING),
        (plan(SLOTS, uid="of a former one"), FallbackReason.PLAN_MISSING),
        (plan({"default/g": [("n0", 5)]}), FallbackReason.PLAN_EXHAUSTED),
    ],
)
def test_what_is_no_plan_for_this_pod_is_counted(made: dict[str, Any] | None, reason: FallbackReason) -> None:
    extender = Obeying()
    if made is not None:
        extender.plans.put(made)
    extender.ask()
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", reason)


def test_a_node_that_is_gone_is_passed_over_and_a_plan_of_nothing_else_is_used_up() -> None:
    extender = Obeying()
    extender.plans.put(plan({"default/f": [("gone", 3), ("n1", 1)]}))
    assert extender.winner("a") == "n1"
    extender.plans.put(plan({"default/f": [("gone", 3)]}))
    extender.ask("b")
    assert extender.last["reason"] == FallbackReason.PLAN_EXHAUSTED


def test_of_two_policies_that_select_the_same_pods_only_the_winners_plan_counts() -> None:
    extender = Obeying()
    extender.policies.put(
        selecting()
        | {"metadata": {**selecting()["metadata"], "name": "later", "uid": "uid-later", "creationTimestamp": "2999-01-01T00:00:00Z"}}
    )
    other = plan({"default/f": [("n3", 9)]}, uid="uid-later")
    other["metadata"] |= {"name": "later", "uid": "plan-later"}
    extender.plans.put(plan(SLOTS))
    extender.plans.put(other)
    assert extender.winner("a") == "n2"


@pytest.mark.parametrize(
    "status", [{}, {"activePolicy": "cost-lean", "observedGeneration": 0}, {"activePolicy": "gosh", "observedGeneration": 1}]
)
def test_a_status_of_another_spec_is_not_obeyed(status: dict[str, Any]) -> None:
    extender = Extender(nodes=2, policies=[selecting() | {"status": status}])
    PlanObjects(extender.world).put(plan(SLOTS))
    extender.ask()
    assert extender.last["reason"] == FallbackReason.NOT_CHOSEN


def test_a_placement_policy_is_obeyed_without_a_plan_and_switched_by_status_alone() -> None:
    extender = Obeying("least-connections")
    extender.ask("a")
    assert (extender.last["outcome"], extender.last["policyName"]) == ("scored", "least-connections")
    extender.policies.put(selecting("cost-lean"))
    extender.plans.put(plan(SLOTS))
    assert extender.winner("b") == "n2"


def test_a_deleted_plan_is_no_plan() -> None:
    extender = Obeying()
    extender.plans.put(plan(SLOTS))
    assert len(extender.plans) == 1
    extender.plans.listed(set())
    extender.ask()
    assert extender.last["reason"] == FallbackReason.PLAN_MISSING


def test_plans_of_one_namespace_take_no_room_from_those_of_others() -> None:
    extender = Obeying()
    kept = PlanObjects(extender.world, most_lines=500)
    kept.put(plan(SLOTS))
    for number in range(100):
        fat = plan({"b/f": [(f"n{n}", 1) for n in range(48)]})
        kept.put(fat | {"metadata": {"name": f"p{number}", "namespace": "b", "uid": f"uid-{number}"}})
    assert len(kept) == 10
    assert extender.winner("u0") == "n2"
    kept.listed({"uid-99", "plan-uid"})
    assert len(kept) == 2
    kept.put(plan({f"b/f{n}": [(f"n{m}", 1) for m in range(16)] for n in range(20)}))
    assert set(extender.world.plans) == {"b/p99", "default/sel"}


def test_a_plan_longer_than_the_operator_makes_changes_nothing() -> None:
    extender = Obeying()
    extender.plans.put(plan(SLOTS))
    with pytest.raises(InvalidInput):
        extender.plans.put(plan({f"default/f{n}": [(f"n{m}", 1) for m in range(256)] for n in range(17)}))
    assert extender.winner("u0") == "n2"
