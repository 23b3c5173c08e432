from typing import Any

import pytest

from tiphys_cli.support.explain import estimate_rows, explanation, never_asked, profile_line, top_scores
from tiphys_models.api.reasons import FallbackReason, NeutralReason, OpenReason


def pod(node: str = "n1", scheduler: str = "tiphys", **changes: Any) -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "True" if node else "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
    spec = {"schedulerName": scheduler, "nodeName": node, "containers": [], **changes.pop("spec", {})}
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **changes}, "spec": spec, "status": {"conditions": conditions}}


def record(**changes: Any) -> dict[str, Any]:
    made = {
        "asked": True,
        "outcome": "scored",
        "reason": "",
        "policy": "ns/main",
        "mode": "Active",
        "policyName": "faasrank",
        "candidates": 100,
        "would": "n1",
        "attempts": [{}],
    }
    return made | changes


def test_a_scored_pod_on_its_best_node_is_explained_by_the_score() -> None:
    found = explanation("ns", "p", pod(), record(), "here", "tiphys")
    assert found.headline == "pod p is on n1; faasrank ranked 100 candidates, best n1"
    assert any("n1 got 10, the highest score, alone" in sentence for sentence in found.because)


def test_another_node_than_the_best_is_not_passed_over_in_silence() -> None:
    found = explanation("ns", "p", pod(node="n2"), record(), "here", "tiphys")
    assert any("n1 got 10, but the pod is on n2" in sentence for sentence in found.because)


def test_several_attempts_are_told() -> None:
    found = explanation("ns", "p", pod(), record(attempts=[{}, {}, {}]), "here", "tiphys")
    assert any("asked 3 times" in sentence for sentence in found.because)


@pytest.mark.parametrize("reason", list(NeutralReason))
def test_every_neutral_reason_says_what_to_know(reason: NeutralReason) -> None:
    found = explanation("ns", "p", pod(), record(outcome="neutral", reason=str(reason)), "here", "tiphys")
    assert found.because[0].startswith(f"{reason}: ")
    assert "see the documentation" not in found.because[0]
    assert "made no difference" in found.headline


@pytest.mark.parametrize("reason", list(FallbackReason))
def test_every_fallback_reason_says_what_to_know(reason: FallbackReason) -> None:
    found = explanation("ns", "p", pod(), record(outcome="fallback", reason=str(reason), policyName="warm-first"), "here", "tiphys")
    assert "the fallback warm-first ranked" in found.headline
    assert any(sentence.startswith(f"{reason}: ") and "see the documentation" not in sentence for sentence in found.because)


def test_shadow_says_what_active_would_have_done() -> None:
    shadowed = record(outcome="neutral", reason="shadow", mode="Shadow", would="n7")
    found = explanation("ns", "p", pod(), shadowed, "here", "tiphys")
    assert "In Active mode faasrank would have put it on n7, not n1, the node it got." in found.because


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("names the scheduler 'default-scheduler'", pod(scheduler="default-scheduler")),
        ("DaemonSet", pod(ownerReferences=[{"kind": "DaemonSet", "name": "d", "controller": True}])),
        ("pins it to n1", pod(spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})),
        ("No node can take it (0/3 nodes)", pod(node="")),
        ("exactly one node could take it", pod()),
        ("There is no such pod now", None),
    ],
)
def test_a_pod_nobody_asked_about_is_told_why(wanted: str, given: dict[str, Any] | None) -> None:
    assert wanted in " ".join(never_asked(given, "tiphys"))
    assert explanation("ns", "p", given, {"asked": False}, "here", "tiphys").record == {}


def test_a_pod_that_waits_points_at_the_scheduler() -> None:
    waiting = pod(node="")
    waiting["status"] = {}
    assert "does it run? See `tiphys doctor`." in " ".join(never_asked(waiting, "tiphys"))


def test_a_node_that_was_set_by_hand_is_named_as_such() -> None:
    by_hand = pod()
    by_hand["status"] = {}
    assert "somebody else than a scheduler" in " ".join(never_asked(by_hand, "tiphys"))


def test_top_scores_prefer_all_candidates_and_fall_back_to_the_log() -> None:
    scores = [{"node": f"n{index}", "score": 10 - index, "raw": 1.0} for index in range(5)]
    assert top_scores({"scores": scores, "top": scores[:1]}, 2) == scores[:2]
    assert top_scores({"top": scores[:3]}, 5) == scores[:3]
    assert top_scores({}, 5) == []


def test_a_call_profile_is_said_in_one_sentence() -> None:
    profile = {"warm_seconds": 2.34, "cold_seconds": 4.45, "warm_core_seconds": 18.7, "cold_core_seconds": 23.2, "parallelism": 8.0}
    assert profile_line("shop/dh", profile) == "A call of shop/dh alone takes 2.34 s warm and 4.45 s cold, on up to 8 cores."


def test_the_json_has_everything_the_text_is_made_of() -> None:
    made = explanation("ns", "p", pod(), record(), "here", "tiphys").as_json()
    assert made.keys() == {"namespace", "pod", "node", "headline", "because", "extender", "decision"}
    assert made["node"] == "n1"


def test_an_estimate_is_shown_in_seconds_with_its_sum() -> None:
    parts = {"start": 1.5, "run": 0.25, "harm": 0.125, "eviction": 0.0}
    assert estimate_rows({"n1": parts}) == [("n1", "1.500 s", "0.250 s", "0.125 s", "0.000 s", "1.875 s")]


def test_a_wait_that_would_have_paid_is_told() -> None:
    found = explanation("ns", "p", pod(), record(wait={"seconds": 0.4, "saves": 2.125}), "here", "tiphys")
    assert any("a warm instance in 0.40 s, and the pod done 2.12 s sooner" in sentence for sentence in found.because)


HELD = {"state": "held", "since": 1_700_000_000.0, "seconds": 2.5, "until": 1_700_000_010.0, "function": "ns/f"}


def test_a_held_pod_says_since_when_for_what_and_until_when() -> None:
    held = HELD | {"rank": 2, "awaitedSeconds": 1.25, "savesSeconds": 3.0}
    found = explanation("ns", "p", pod(node=""), {"asked": False, "held": held}, "here", "tiphys")
    assert found.headline == "pod p is held since 22:13:20 UTC, 2.5 s; it goes at 22:13:30 UTC at the latest"
    (said,) = found.because
    assert "expected for it in 1.25 s" in said
    assert "3.00 s sooner" in said
    assert "2 of its function wait before it" in said
    assert found.record["held"] == held


def test_a_gated_pod_that_nobody_has_looked_at_says_so() -> None:
    found = explanation("ns", "p", pod(node=""), {"asked": False, "held": HELD}, "here", "tiphys")
    assert "nobody has looked at it yet" in found.because[0]


@pytest.mark.parametrize("reason", list(OpenReason))
def test_a_pod_that_was_held_says_for_how_long_and_why_it_was_let_go(reason: OpenReason) -> None:
    found = explanation("ns", "p", pod(), record(held={"seconds": 1.5, "reason": str(reason)}), "here", "tiphys")
    (said,) = [sentence for sentence in found.because if "It was held" in sentence]
    assert said.startswith(f"It was held for 1.50 s behind its scheduling gate and let go ({reason}): ")
    assert "see the documentation" not in said


def test_a_pod_that_was_let_go_and_never_asked_about_says_both() -> None:
    held = HELD | {"state": "opened", "reason": "bound"}
    found = explanation("ns", "p", pod(), {"asked": False, "held": held}, "here", "tiphys")
    assert "It was held for 2.50 s" in found.because[0]
    assert len(found.because) > 1
    waits = explanation("ns", "p", pod(node=""), {"asked": False, "held": held}, "here", "tiphys")
    assert "has been let go" in waits.headline


def test_hints_that_stand_as_we_wrote_them_are_told_and_users_own_are_not() -> None:
    mark = {"tiphys.io/hints": "deletionCost=13,doNotDisrupt=95s", "karpenter.sh/do-not-disrupt": "95s"}
    for asked in (record(), record(asked=False)):
        found = explanation("ns", "p", pod(annotations=mark | {"controller.kubernetes.io/pod-deletion-cost": "5"}), asked, "here", "tiphys")
        assert [line for line in found.because if "95s" in line], "ours"
        assert not [line for line in found.because if "deletion cost" in line], "a user has changed it"
    found = explanation("ns", "p", pod(annotations=mark | {"controller.kubernetes.io/pod-deletion-cost": "13"}), record(), "here", "tiphys")
    assert found.because[-1].startswith("Its deletion cost is 13: ")
