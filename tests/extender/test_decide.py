"""What is decided: modes, time, reservations."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.builders import pod, policy_object
from tests.extender.harness import ACTIVE, Extender, arguments, decode_as_go, first, is_neutral, pod_json, untrained
from tiphys_extender.placement.answer import AnswerLimits
from tiphys_models.api.reasons import NeutralReason
from tiphys_models.base.clock import ManualClock
from tiphys_models.seats.shares import in_share

FAASRANK = policy_object("learned", mode="Active", policy="faasrank", model="m", fallback="least-connections")


# ---- who decides ---------------------------------------------------------------------------------------------------


def test_active_ranks_and_reserves() -> None:
    extender = Extender(nodes=3)
    extender.state.bound(pod("busy", node="n0"), extender.clock.now_s())
    answer = extender.ask()
    assert answer["n0"] == min(answer.values())
    assert sorted(answer.values()) == [4, 9, 10]
    assert extender.state.reservations == 1
    assert extender.last["outcome"] == "scored"
    assert extender.last["would"] == first(answer)
    assert extender.counted("policy_answers_total", policy="least-connections") == 1


def test_shadow_is_neutral_reserves_nothing_and_logs_what_it_would_have_said() -> None:
    extender = Extender(nodes=3, policies=[policy_object(mode="Shadow", policy="least-connections")])
    extender.state.bound(pod("busy", node="n0"), extender.clock.now_s())
    assert is_neutral(extender.ask())
    assert extender.state.reservations == 0
    record = extender.last
    assert (record["outcome"], record["reason"], record["mode"]) == ("neutral", "shadow", "Shadow")
    assert record["would"] in ("n1", "n2")
    assert len(record["top"]) == 3
    extender.decisions.bound("u0", "n0")
    assert extender.counted("choices_total", result="other", mode="Shadow") == 1
    assert extender.last["chosen"] == "n0"


def test_canary_decides_its_share_and_no_more() -> None:
    extender = Extender(nodes=3, policies=[policy_object(mode="Canary", canary={"percent": 30}, policy="least-connections")])
    decided = 0
    for index in range(300):
        uid = f"uid-{index}"
        neutral = is_neutral(extender.ask(uid))
        assert neutral != in_share(uid, 30)
        decided += not neutral
    assert 60 <= decided <= 120
    assert extender.counted("neutral_answers_total", reason="canary") == 300 - decided
    assert extender.state.reservations == decided


@pytest.mark.parametrize(
    ("reason", "prepare", "changes"),
    [
        (NeutralReason.NO_POLICY, lambda e: e.policies.drop(ACTIVE), {}),
        (NeutralReason.NO_POLICY, lambda e: None, {"namespace": "elsewhere"}),
        (NeutralReason.MODE_OFF, lambda e: e.policies.put(policy_object("active", mode="Off")), {}),
        (NeutralReason.DISABLED, lambda e: setattr(e.world, "enabled", False), {}),
        (NeutralReason.NOT_SYNCED, lambda e: setattr(e.world, "synced", False), {}),
        (NeutralReason.OTHER_SCHEDULER, lambda e: None, {"spec": {"schedulerName": "default-scheduler"}}),
        (NeutralReason.BAD_POD, lambda e: None, {"metadata": "no object"}),
        (NeutralReason.NO_KNOWN_NODE, lambda e: [e.state.drop_node(name) for name in ("n0", "n1")], {}),
    ],
    ids=lambda value: str(value) if isinstance(value, NeutralReason) else "",
)
def test_every_neutral_answer_is_complete_and_counted(reason: NeutralReason, prepare: Any, changes: dict[str, Any]) -> None:
    extender = Extender(nodes=2)
    prepare(extender)
    answer = extender.ask(names=["n0", "n1"], **changes)
    assert answer == {"n0": 5, "n1": 5}
    assert extender.counted("neutral_answers_total", reason=reason) == 1
    assert extender.counted("answers_total", outcome="neutral") == 1
    assert extender.state.reservations == 0


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease", "tiphys-system"])
def test_pods_of_the_cluster_and_of_the_release_are_never_placed(namespace: str) -> None:
    extender = Extender(nodes=2, policies=[policy_object(namespace=namespace, mode="Active", policy="least-connections")])
    assert is_neutral(extender.ask(namespace=namespace))


def test_a_policy_changed_or_deleted_counts_for_the_next_call() -> None:
    extender = Extender(nodes=2)
    assert not is_neutral(extender.ask("a"))
    extender.policies.put(policy_object("active", mode="Shadow"))
    assert is_neutral(extender.ask("b"))
    extender.policies.put(ACTIVE)
    assert not is_neutral(extender.ask("c"))
    extender.policies.drop(ACTIVE)
    assert is_neutral(extender.ask("d"))


def test_an_invalid_policy_is_counted_and_leaves_its_last_valid_spec_until_it_is_deleted() -> None:
    extender = Extender(nodes=2)
    extender.policies.put(policy_object("active", mode="Canary"))  # percent is missing
    assert extender.counted("invalid_policies") == 1
    assert not is_neutral(extender.ask("a"))
    extender.policies.put(policy_object("other", mode="Sometimes"))
    assert extender.counted("invalid_policies") == 2
    extender.policies.drop(ACTIVE)
    assert is_neutral(extender.ask("b"))
    assert extender.counted("invalid_policies") == 1
    assert extender.counted("routes", mode="Active") == 0


def test_a_policy_that_nobody_has_is_answered_by_its_fallback() -> None:
    extender = Extender(nodes=3, policies=[policy_object(mode="Active", policy="no-such-policy", fallback="least-connections")])
    assert not is_neutral(extender.ask("a"))
    assert (extender.last["outcome"], extender.last["reason"]) == ("fallback", "policy-unknown")
    assert extender.counted("policy_answers_total", policy="least-connections") == 1
    assert extender.counted("invalid_policies") == 0


def test_a_policy_made_again_under_the_same_name_does_not_inherit_the_old_spec() -> None:
    extender = Extender(nodes=2)
    again = policy_object("active", mode="Canary")
    again["metadata"]["uid"] = "another"
    extender.policies.put(again)
    assert is_neutral(extender.ask())


# ---- time ----------------------------------------------------------------------------------------------------------


class HastyClock(ManualClock):
    """Every look at it costs 5 ms."""

    def monotonic_s(self) -> float:
        self.advance(0.005)
        return super().monotonic_s()


def test_beyond_its_budget_an_answer_is_neutral() -> None:
    extender = Extender(nodes=3, clock=HastyClock(), limits=AnswerLimits(deadline_s=0.012))
    assert is_neutral(extender.ask())
    assert extender.last["reason"] == NeutralReason.DEADLINE
    assert extender.state.reservations == 0
    extender = Extender(nodes=3, clock=HastyClock(), limits=AnswerLimits(deadline_s=0.1))
    assert not is_neutral(extender.ask())


def test_too_many_names_are_answered_but_not_judged() -> None:
    extender = Extender(nodes=3, limits=AnswerLimits(deadline_s=10, max_names=2))
    assert is_neutral(extender.ask())
    assert extender.counted("neutral_answers_total", reason="too-many-names") == 1


# ---- spreading -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["least-connections", "warm-first", "faasrank"])
def test_reservations_spread_a_burst(tmp_path: Path, policy: str) -> None:
    # weights that prefer few pods in flight, and read nothing else
    untrained(tmp_path, "faasrank")
    extender = Extender(nodes=10, policies=[policy_object(mode="Active", policy=policy)], models=tmp_path)
    extender.read()
    chosen = Counter(first(extender.ask(f"burst-{i}")) for i in range(100))
    assert extender.last["outcome"] == "scored"
    assert extender.state.reservations == 100
    if policy == "faasrank":  # random weights may like company; they must at least notice it
        assert len(chosen) > 1
    else:
        assert set(chosen.values()) == {10}


@pytest.mark.parametrize("policy", ["least-connections", "warm-first", "static-rank", "faasrank"])
@pytest.mark.parametrize("mode", ["Active", "Shadow"])
def test_an_idle_uniform_cluster_never_herds(tmp_path: Path, policy: str, mode: str) -> None:
    untrained(tmp_path, "faasrank")
    clock = ManualClock()
    extender = Extender(nodes=50, policies=[policy_object(mode=mode, policy=policy)], models=tmp_path, clock=clock, capacity=5000)
    extender.read()
    chosen: Counter[str] = Counter()
    for index in range(400):
        extender.ask(f"idle-{index}")
        chosen[extender.last["would"]] += 1
        extender.state.finished(f"idle-{index}")  # the pod is gone before the next one comes
    assert max(chosen.values()) <= 400 * 0.06
    assert len(chosen) >= 45


def test_a_node_above_its_share_of_a_function_goes_behind_the_others() -> None:
    policy = policy_object(mode="Active", policy="greedy", guardrails={"maxNodeSharePercent": 40})
    extender = Extender(nodes=4, policies=[policy])
    chosen = Counter(first(extender.ask(f"p{i}")) for i in range(40))
    # greedy alone would put all 40 on the first node
    assert max(chosen.values()) <= 40 * 0.4 + 1
    assert extender.ask("other", function="g")["n0"] == 10  # another function has its own share


def test_the_share_of_a_node_never_bars_all_candidates() -> None:
    policy = policy_object(mode="Active", policy="greedy", guardrails={"maxNodeSharePercent": 1})
    extender = Extender(nodes=3, policies=[policy])
    for index in range(9):
        extender.ask(f"p{index}")
    answer = extender.ask("last")
    assert sorted(answer.values()) == [4, 9, 10]
    assert answer["n0"] == 10  # all are above 1 %: greedy's own order stands


def test_two_replicas_agree_on_every_answer(tmp_path: Path) -> None:
    untrained(tmp_path, "faasrank")
    policies = [
        policy_object("a", "default", mode="Active", policy="faasrank"),
        policy_object("b", "faas", mode="Active", policy="warm-first"),
        policy_object("c", "ring", mode="Active", policy="round-robin"),
    ]
    replicas = [Extender(nodes=20, policies=order, models=tmp_path) for order in (policies, policies[::-1])]
    for replica in replicas:
        replica.read(cpu_load_avg={f"n{i}": i % 7 for i in range(20)})
    for index in range(60):
        namespace = ("default", "faas", "ring")[index % 3]
        names = [f"n{(index + k) % 20}" for k in range(12)]
        answers = [replica.ask(f"u{index}", names, namespace=namespace) for replica in replicas]
        assert answers[0] == answers[1]
        for replica in replicas:  # both see the same binding
            replica.state.bound(pod(f"u{index}", node=first(answers[0])), replica.clock.now_s())


def test_a_pod_asked_again_is_one_reservation_and_two_attempts() -> None:
    extender = Extender(nodes=3)
    extender.ask("again")
    extender.ask("again")
    assert extender.state.reservations == 1
    assert [record.attempt for record in extender.decisions.of_uid("again")] == [1, 2]


def test_pod_json_of_the_tests_carries_a_secret_that_no_record_keeps() -> None:
    assert "hunter2-in-env" in str(pod_json())
    extender = Extender(nodes=3)
    extender.ask()
    record = extender.decisions.of_uid("u0")[0]
    detail = extender.decisions.detail(record.seq)
    assert "hunter2" not in str(record.as_json()) + str(detail)


def test_a_decision_sees_the_reservations_of_all_answers_before_it_even_if_nobody_settled_them() -> None:
    extender = Extender(nodes=2, policies=[policy_object(mode="Active", policy="least-connections")])
    winners = set()
    for uid in ("a", "b"):
        answer = decode_as_go(extender.answerer.prioritize(json.dumps(arguments(["n0", "n1"], uid=uid)).encode()))
        winners.add(next(entry["Host"] for entry in answer if entry["Score"] == 10))
    assert winners == {"n0", "n1"}
