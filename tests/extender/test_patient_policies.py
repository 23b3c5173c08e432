"""Policies that know the books, served: they decide, fall back, explain themselves, and say when they would rather have waited."""

from __future__ import annotations

from pathlib import Path

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
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.patient import Estimator

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


def test_the_rule_answers_when_an_estimate_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Estimator, view: CandidateView, memory: PlacementMemory) -> None:
        raise ZeroDivisionError

    made = extender("estimator")
    monkeypatch.setattr(Estimator, "score", fails)
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
