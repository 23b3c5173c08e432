"""Policies that know the books, served: they decide, fall back, explain themselves, and say when they would rather have waited."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import pod, policy_object, request
from tests.extender.binder_harness import Binder, call, calling
from tests.extender.harness import Extender, pod_json
from tiphys_extender.placement.explain import explain
from tiphys_extender.placement.objects import PodSink
from tiphys_models.api.reasons import FallbackReason
from tiphys_models.base.clock import ManualClock
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.candidates import CandidateView
from tiphys_models.placement.objectives import PricedEstimator, added_node_s
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.placed import CallEnd

PATIENT = ("warm-first-books", "warm-first-waits", "rule-6", "estimator")
WAITING = PATIENT[1:]
SLOW_START = FunctionProfile(0.5, 5.5, 1.0, 1.0, 2.0)


def extender(policy: str, mode: str = "Active") -> Extender:
    """Four nodes; a call of function f is about to end on n2."""
    made = Extender(nodes=4, policies=[policy_object("p", mode=mode, policy=policy)], clock=ManualClock())
    made.state.put_profiles({"default/f": SLOW_START})
    made.state.bound(pod("busy", node="n2", scheduled_s=made.clock.now_s()), made.clock.now_s())
    assert isinstance(made.clock, ManualClock)
    made.clock.advance(5.0)
    return made


@pytest.mark.parametrize("policy", PATIENT)
def test_a_pod_goes_where_the_books_list_an_idle_instance(policy: str) -> None:
    made = extender(policy)
    made.state.ran("busy", made.clock.now_s())
    scores = made.ask("next")
    assert scores["n2"] == 10
    assert (made.last["outcome"], made.last["policyName"], made.last["wait"]) == ("scored", policy, None)
    assert made.counted("would_wait_total") == 0


@pytest.mark.parametrize("policy", WAITING)
def test_a_pod_that_had_better_wait_gets_the_best_node_and_the_record_says_so(policy: str) -> None:
    made = extender(policy)
    scores = made.ask("next")
    assert max(scores.values()) == 10
    assert made.last["outcome"] == "scored"
    assert 0 < made.last["wait"]["seconds"] < 5.0
    assert made.last["wait"]["saves"] > 0
    assert made.counted("would_wait_total") == 1
    assert made.state.reservations == 1


def test_in_shadow_the_wait_is_kept_as_well() -> None:
    made = extender("estimator", mode="Shadow")
    made.ask("next")
    assert made.last["outcome"] == "neutral"
    assert made.last["wait"] is not None


def test_the_estimate_of_the_best_nodes_is_explained_in_seconds() -> None:
    made = extender("estimator")
    made.ask("next", names=["n1", "n2", "nobody-knows"])
    records = made.decisions.of_uid("next")
    found = explain(made.decisions, records, 0.0)["estimate"]
    assert set(found) == {"n1", "n2"}
    assert found["n1"] == {"start": 5.0, "run": 0.5, "harm": 0.0, "eviction": 0.0}
    raw = {score["node"]: score["raw"] for score in explain(made.decisions, records, 0.0)["scores"]}
    assert raw["n1"] == pytest.approx(-5.5)


def test_no_estimate_is_shown_of_a_function_that_nobody_knows() -> None:
    made = extender("estimator")
    made.ask("next", function="new")
    assert "estimate" not in explain(made.decisions, made.decisions.of_uid("next"), 0.0)


def seen_to_end(made: Extender, function: str, core_seconds: float) -> None:
    """Four calls of a function that nobody declared ended on n3."""
    for i in range(4):
        made.state.bound(pod(f"{function}-{i}", function=function, node="n3", scheduled_s=made.clock.now_s()), made.clock.now_s())
        made.state.ran(f"{function}-{i}", made.clock.now_s() + 1.0, CallEnd(core_seconds=core_seconds))


def test_without_processor_time_the_strongest_rule_answers_and_says_why() -> None:
    made = extender("estimator")
    seen_to_end(made, "default/blind", math.nan)
    scores = made.ask("next", function="blind")
    assert scores["n3"] == 10  # the books know as much as ever
    assert (made.last["outcome"], made.last["reason"]) == ("fallback", FallbackReason.CPU_MISSING)
    assert made.last["policyName"] == "warm-first-waits"
    assert made.counted("fallback_answers_total", reason="container-cpu-missing") == 1
    seen_to_end(made, "default/seen", 2.0)
    made.ask("other", function="seen")
    assert (made.last["outcome"], made.last["policyName"]) == ("scored", "estimator")


def test_a_published_profile_lets_the_estimator_decide_without_processor_time() -> None:
    made = extender("estimator")
    seen_to_end(made, "default/blind", math.nan)
    made.state.functions.publish({"default/blind": np.array([5.0, 1.0, 2.0, 2.0])})
    made.ask("next", function="blind")
    assert (made.last["outcome"], made.last["policyName"]) == ("scored", "estimator")


@pytest.mark.parametrize(
    ("spec", "judge"),
    [
        ({"objective": "completion", "policy": "greedy"}, "greedy"),
        ({"objective": "cost"}, "lifetimes"),
        ({"objective": "cost", "policy": "estimator"}, "lifetimes"),
        ({"objective": "cost", "policy": "most-allocated"}, "most-allocated"),
        ({"objective": "both"}, "estimator"),
        ({"objective": "both", "policy": "estimator", "nodeSecondWorthMilliseconds": 500}, "estimator"),
    ],
)
def test_the_objective_says_who_judges(spec: dict[str, Any], judge: str) -> None:
    made = Extender(nodes=4, policies=[policy_object("p", mode="Active", **spec)], clock=ManualClock())
    made.ask("next")
    assert (made.last["outcome"], made.last["policyName"]) == ("scored", judge)


@pytest.mark.parametrize(("policy", "objective"), [("greedy", "cost"), ("lifetimes", "both"), ("warm-first", "both"), ("faasrank", "cost")])
def test_a_policy_that_cannot_judge_by_the_objective_leaves_it_to_the_fallback(policy: str, objective: str) -> None:
    made = Extender(nodes=4, policies=[policy_object("p", mode="Active", policy=policy, objective=objective)], clock=ManualClock())
    made.ask("next")
    assert (made.last["reason"], made.last["policyName"]) == (FallbackReason.OBJECTIVE_UNSUPPORTED, "warm-first")


def test_seconds_of_a_node_are_added_at_their_price() -> None:
    made = extender("estimator")
    now_s = made.clock.now_s()
    made.state.bound(pod("stays", node="n1", scheduled_s=now_s - 90_000.0), now_s)
    rows = made.state.nodes.rows(["n0", "n1"])
    view = made.state.view(request("next"), rows)
    free, memory = PricedEstimator(worth_s=0.0), made.state.memory()
    np.testing.assert_allclose(free.score(view, memory), Estimator().score(view, memory))
    added = added_node_s(view)
    assert added[0] > added[1] > 0  # n0 would be opened for it, on n1 somebody stays anyway
    dear = PricedEstimator(worth_s=0.25).score(view, memory)
    np.testing.assert_allclose(dear, Estimator().score(view, memory) - 0.25 * added)


def test_the_rule_answers_when_an_estimate_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Estimator, view: CandidateView) -> None:
        raise ZeroDivisionError

    made = extender("estimator")
    monkeypatch.setattr(Estimator, "costs", fails)
    made.ask("next")
    assert (made.last["outcome"], made.last["reason"], made.last["policyName"]) == ("fallback", FallbackReason.POLICY_ERROR, "warm-first")


def test_a_remark_that_fails_costs_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    made = extender("estimator")
    monkeypatch.setattr(Estimator, "not_yet", fails)
    made.ask("next")
    assert (made.last["outcome"], made.last["wait"], made.state.reservations) == ("scored", None, 1)


def test_the_watch_of_pods_keeps_the_books() -> None:
    made = extender("warm-first-books")
    sink = PodSink(made.world, made.decisions, made.clock)
    for uid, phase in (("fails", "Failed"), ("ends", "Running")):
        shown = pod_json(uid, spec={"nodeName": "n1"}, status={"phase": "Running"})
        sink.put(shown)
        sink.drop(shown | {"status": {"phase": phase}})
        row = made.state.nodes.rows(["n1"])
        warm = made.state.view(request(function="default/f"), row).believed().warm[0]
        assert warm == (uid == "ends")


@pytest.mark.parametrize("body", [b"", b"{", b'{"coreSeconds": -1}', b'{"coreSeconds": 6.0, "startSeconds": 2.0, "cold": true, "else": 1}'])
async def test_a_call_is_over_whatever_its_caller_says_it_was_like(body: bytes, tmp_path: Path) -> None:
    binder = Binder()
    async with calling(binder, tmp_path) as caller:
        placed = (await caller.post("", call()))[1]
        assert await caller.post(f"/{placed['id']}/finished", body) == (200, {"id": placed["id"], "released": True})
    assert binder.inflight() == {}


async def test_what_callers_say_of_ended_calls_is_learned(tmp_path: Path) -> None:
    binder = Binder(policies=[policy_object("active", mode="Active", policy="estimator")])
    said = b'{"coreSeconds": 6.0, "startSeconds": 2.0, "cold": true}'
    async with calling(binder, tmp_path) as caller:
        for _ in range(40):
            placed = (await caller.post("", call()))[1]
            binder.clock.advance(4.0)
            await caller.post(f"/{placed['id']}/finished", said)
    start_s, _, cold_work, cores = binder.state.view(request(function="default/f"), np.zeros(1, np.int64)).believed().profile
    assert (start_s, cold_work, cores) == pytest.approx((2.0, 6.0, 3.0), rel=0.05)
