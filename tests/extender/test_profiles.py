"""A model that needs to know what calls are like decides for functions it knows that of, and for no others."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.builders import pod, policy_object, request
from tests.extender.harness import Extender
from tiphys_extender.placement.explain import explain
from tiphys_extender.placement.objects import PodSink
from tiphys_models.api.reasons import FallbackReason
from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.base.clock import ManualClock
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.outlook import INPUT_NAMES
from tiphys_models.placement.profiles import ProfileGap
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.runs import ENOUGH

SHIPPED = policy_object("learned", mode="Active", policy="faasrank", model="faasrank")
PROFILE = FunctionProfile(2.0, 5.0, 4.0, 8.0, 2.0)


def extender(**profiles: FunctionProfile) -> Extender:
    made = Extender(nodes=4, policies=[SHIPPED], models=WEIGHTS, clock=ManualClock())
    made.read(cpu_load_avg={f"n{i}": float(i) for i in range(4)})
    made.state.put_profiles({f"default/{function}": profile for function, profile in profiles.items()})
    return made


def asked(made: Extender, function: str, uid: str = "u0") -> tuple[str, str, str]:
    """Outcome, reason and who judged."""
    made.ask(uid, function=function)
    return made.last["outcome"], made.last["reason"], made.last["policyName"]


def run(made: Extender, function: str, took_s: float, count: int = ENOUGH, **deleted: Any) -> None:
    """Pods of the function come, are bound, and end after so long; a watch shows that as deleted."""
    sink = PodSink(made.world, made.decisions, made.clock)
    for index in range(count):
        uid = f"{function}-{made.decisions.last}-{index}"
        made.state.put_pod(pod(uid, function=f"default/{function}", node="n1"), made.clock.now_s())
        assert isinstance(made.clock, ManualClock)
        made.clock.advance(took_s)
        sink.drop({"metadata": {"uid": uid, "namespace": "default", "name": uid, **deleted}, "spec": {"nodeName": "n1"}})
    made.read(cpu_load_avg={f"n{i}": float(i) for i in range(4)})


def test_a_function_without_profile_is_left_to_the_fallback_and_the_others_are_not() -> None:
    made = extender(known=PROFILE)
    assert asked(made, "known") == ("scored", "", "faasrank")
    assert asked(made, "new", "u1") == ("fallback", "function-without-profile", "warm-first")
    assert made.counted("fallback_answers_total", reason="function-without-profile") == 1
    made.state.put_profiles({"default/new": PROFILE})
    assert asked(made, "new", "u2") == ("scored", "", "faasrank")


def test_without_any_profile_the_reason_is_still_that_nobody_reports_any() -> None:
    assert asked(extender(), "any") == ("fallback", "profiles-missing", "warm-first")


@pytest.mark.parametrize("took_s", [0.2, 40.0])
def test_a_profile_that_the_runs_contradict_is_not_believed_until_it_is_corrected(took_s: float) -> None:
    made = extender(wrong=PROFILE, right=PROFILE)
    run(made, "wrong", took_s, ENOUGH - 1)
    assert asked(made, "wrong") == ("scored", "", "faasrank")
    run(made, "wrong", took_s, 1)
    assert asked(made, "wrong", "u1") == ("fallback", "profile-contradicted", "warm-first")
    assert asked(made, "right", "u2")[0] == "scored"
    made.state.put_profiles({"default/wrong": FunctionProfile(took_s, took_s, 1.0, 1.0, 1.0)})
    assert asked(made, "wrong", "u3") == ("scored", "", "faasrank")


def test_a_function_whose_runs_agree_again_is_judged_again() -> None:
    made = extender(f=PROFILE)
    run(made, "f", 40.0)
    assert asked(made, "f")[1] == "profile-contradicted"
    run(made, "f", 4.0, 1)
    assert asked(made, "f", "u1")[0] == "scored"


def test_calls_that_share_a_node_and_take_longer_contradict_nothing() -> None:
    made = extender(f=PROFILE)
    run(made, "f", 3 * PROFILE.cold_s, 30)
    assert asked(made, "f")[0] == "scored"


def test_pods_that_were_deleted_or_never_seen_to_run_say_nothing_about_how_long_runs_take() -> None:
    made = extender(f=PROFILE)
    run(made, "f", 40.0, deletionTimestamp="2026-01-01T00:00:00Z")
    for index in range(ENOUGH):
        made.ask(f"reserved-{index}", function="f")
        made.state.ran(f"reserved-{index}", made.clock.now_s() + 40)
    assert asked(made, "f")[0] == "scored"


def test_what_the_state_says_of_a_function_are_reasons_that_are_counted() -> None:
    assert {str(gap) for gap in ProfileGap} <= {str(reason) for reason in FallbackReason}


def test_explain_shows_every_input_that_the_model_read_as_it_read_it() -> None:
    made = extender(known=PROFILE)
    run(made, "known", 4.0, 2)
    made.state.put_pod(pod("other", function="default/known", node="n2"), made.clock.now_s())
    policy = made.models.policy(PolicyName.FAASRANK, "faasrank", "Active")
    assert isinstance(policy, FaaSRank)
    made.ask("why", function="known")
    detail = made.decisions.detail(made.decisions.last)
    assert detail is not None
    raw = policy.score_inputs(detail.seen.features())
    made.state.decided(request("later", function="default/known"), "n0", made.clock.now_s())  # what comes later changes nothing
    answer = explain(made.decisions, made.decisions.of_uid("why"), 0.0)
    features = answer["features"]
    assert len(features) == 3
    assert all(list(inputs) == list(INPUT_NAMES) and len(inputs) == 42 for inputs in features.values())
    assert {node: inputs["same_inflight"] for node, inputs in features.items()} == {node: float(node == "n2") for node in features}
    assert features[answer["would"]]["parallelism"] == pytest.approx(2.0 / 8)
    assert [score["raw"] for score in answer["scores"][:3]] == pytest.approx(raw.tolist(), rel=1e-5)
    orjson.dumps(answer)


def test_explain_shows_inputs_beside_nodes_that_nobody_knows() -> None:
    made = extender(known=PROFILE)
    made.ask("why", names=["new", "n0", "n1"], function="known")
    features = explain(made.decisions, made.decisions.of_uid("why"), 0.0)["features"]
    assert set(features) == {"n0", "n1"}
    assert features["n1"]["cpu_load_avg"] == 1.0
    assert features["n0"]["cpu_load_avg"] == 0.0
    assert {len(inputs) for inputs in features.values()} == {42}


def test_where_the_fallback_decided_explain_shows_the_columns_of_the_nodes() -> None:
    made = extender(known=PROFILE)
    made.ask("why", function="new")
    features = explain(made.decisions, made.decisions.of_uid("why"), 0.0)["features"]
    assert {len(inputs) for inputs in features.values()} == {26}
