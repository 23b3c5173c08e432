"""Calls are placed, counted, kept under lease and released."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.builders import policy_object
from tests.extender.binder_harness import ACTIVE, OTHER, PLATFORM, Binder, node_object
from tests.extender.harness import Extender, pod_json
from tiphys_extender.calls.placer import new_uid
from tiphys_extender.placement.answer import AnswerLimits
from tiphys_extender.serve.caps import Caps
from tiphys_extender.serve.refused import Refused
from tiphys_extender.serve.tenants import Tenant
from tiphys_models.seats.shares import in_share


def refused(reason: str) -> Any:
    return pytest.raises(Refused, check=lambda error: error.reason == reason)


def test_reservations_spread_calls_that_come_at_once() -> None:
    binder = Binder(nodes=4)
    nodes = Counter(binder.place()["node"] for _ in range(12))
    assert nodes == dict.fromkeys(["n0", "n1", "n2", "n3"], 3)
    assert binder.inflight() == nodes


def test_the_answer_is_the_one_the_scheduler_would_get() -> None:
    binder, extender = Binder(nodes=4), Extender(nodes=4)
    for _ in range(9):
        answer = binder.place()
        scores = extender.ask(answer["id"])
        assert {entry["node"]: entry["score"] for entry in answer["nodes"]} == scores
        assert (answer["node"], answer["nodes"][0]["score"]) == (max(scores, key=lambda host: scores[host]), 10)


def test_finished_releases_and_may_be_said_twice() -> None:
    binder = Binder(nodes=2)
    uid = binder.place()["id"]
    assert sum(binder.inflight().values()) == 1
    assert binder.placer.finished(PLATFORM, uid) == {"id": uid, "released": True}
    assert binder.placer.finished(PLATFORM, uid) == {"id": uid, "released": False}
    assert binder.inflight() == {}
    assert binder.state.nodes.memory_requested.sum() == 0
    assert (binder.counted("finished_total", result="released"), binder.counted("finished_total", result="unknown")) == (1, 1)


def test_a_platform_that_chose_another_node_says_so_and_policies_see_it() -> None:
    binder = Binder(nodes=3)
    answer = binder.place()
    other = next(entry["node"] for entry in answer["nodes"][1:])
    assert binder.report(answer["id"], node=other)["node"] == other
    assert binder.inflight() == {other: 1}
    assert binder.placer.explain(PLATFORM, answer["id"])["chosen"] == other
    assert binder.counted("choices_total", result="other", mode="Active") == 1


def test_a_lease_that_nobody_renews_ends_and_is_counted() -> None:
    binder = Binder(nodes=2, lease_s=30)
    kept, lost = binder.place()["id"], binder.place()["id"]
    binder.clock.advance(20)
    binder.report(kept)
    binder.clock.advance(20)
    binder.placer.tick()
    assert [binder.leases.get(uid) is not None for uid in (kept, lost)] == [True, False]
    assert sum(binder.inflight().values()) == 1
    assert (binder.counted("leases_expired_total"), binder.counted("open_placements")) == (1, 1)
    with refused("unknown-placement"):
        binder.report(lost)


def test_a_binder_that_restarted_learns_open_calls_from_their_renewals() -> None:
    before, after = Binder(nodes=2), Binder(nodes=2)
    answer = before.place()
    with refused("unknown-placement"):
        after.report(answer["id"])
    report = {"node": answer["node"], "namespace": "default", "function": "f", "cpu": "100m", "memory": "256Mi"}
    assert after.report(answer["id"], **report) == {"id": answer["id"], "node": answer["node"], "relearnt": True, "leaseSeconds": 60}
    assert after.inflight() == before.inflight() == {answer["node"]: 1}
    assert after.state.nodes.memory_requested.sum() == before.state.nodes.memory_requested.sum()
    assert after.counted("placements_relearned_total") == 1
    assert after.report(answer["id"])["relearnt"] is False
    assert after.placer.explain(PLATFORM, answer["id"])["asked"] is False
    assert after.placer.finished(PLATFORM, answer["id"])["released"] is True


def test_a_renewal_that_comes_after_finished_brings_nothing_back() -> None:
    binder = Binder()
    answer = binder.place()
    binder.placer.finished(PLATFORM, answer["id"])
    with refused("finished"):
        binder.report(answer["id"], node=answer["node"], namespace="default", function="f")
    assert binder.inflight() == {}


@pytest.mark.parametrize("uid", ["u0", "call-xyz", "call-" + "A" * 32], ids=str)
def test_no_report_can_take_the_place_of_a_pod(uid: str) -> None:
    with refused("unknown-placement"):
        Binder().report(uid, node="n0", namespace="default", function="f")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [({"mode": "Off"}, "mode-off"), ({"mode": "Shadow"}, "shadow"), (None, "no-policy")],
    ids=["off", "shadow", "no policy"],
)
def test_where_tiphys_has_no_opinion_it_says_so_and_reserves_nothing(spec: dict[str, Any] | None, reason: str) -> None:
    binder = Binder(policies=[policy_object(policy="least-connections", **spec)] if spec else [])
    answer = binder.place()
    assert (answer["outcome"], answer["reason"], answer["reserved"], answer["node"], answer["nodes"]) == (
        "neutral",
        reason,
        False,
        None,
        [],
    )
    assert "no opinion" in answer["message"]
    assert "leaseSeconds" not in answer
    assert binder.inflight() == {}
    assert len(binder.leases) == 0
    assert binder.counted("neutral_answers_total", reason=reason) == 1
    explained = binder.placer.explain(PLATFORM, answer["id"])
    assert (explained["open"], bool(explained["would"])) == (False, reason == "shadow")


def test_in_shadow_a_call_counts_where_its_platform_ran_it() -> None:
    binder = Binder(policies=[policy_object(mode="Shadow", policy="least-connections")])
    uid = binder.place()["id"]
    binder.report(uid, node="n3", namespace="default", function="f")
    assert binder.inflight() == {"n3": 1}
    assert binder.placer.explain(PLATFORM, uid)["chosen"] == "n3"


def test_a_canary_decides_its_share_only() -> None:
    binder = Binder(policies=[policy_object(mode="Canary", policy="least-connections", canary={"percent": 30})])
    answers = [binder.place() for _ in range(60)]
    assert {a["id"] for a in answers if a["reserved"]} == {a["id"] for a in answers if in_share(a["id"], 30)}
    assert {a["reason"] for a in answers if not a["reserved"]} == {"canary"}


def test_labels_choose_the_policy_as_they_do_for_pods() -> None:
    special = policy_object("special", mode="Active", policy="hashing", selector={"matchLabels": {"tier": "gold"}})
    by_function = policy_object("g", mode="Off", selector={"matchLabels": {"tiphys.io/function": "g"}})
    binder = Binder(policies=[ACTIVE, special, by_function])
    assert binder.place()["policy"] == "default/active"
    gold = binder.place(labels={"tier": "gold"})
    assert (gold["policy"], gold["policyName"], gold["mode"]) == ("default/special", "hashing", "Active")
    assert binder.place(function="g")["reason"] == "mode-off"


def test_the_kill_switch_and_a_cold_start_leave_no_opinion() -> None:
    binder = Binder()
    binder.world.enabled = False
    assert binder.place()["reason"] == "disabled"
    binder.world.enabled, binder.world.synced = True, False
    assert binder.place()["reason"] == "not-synced"


def test_a_fallback_is_named_and_reserves() -> None:
    binder = Binder(policies=[policy_object(mode="Active", policy="faasrank", fallback="least-connections")])
    answer = binder.place()
    assert (answer["outcome"], answer["reason"], answer["policyName"]) == ("fallback", "model-missing", "least-connections")
    assert binder.inflight() == {answer["node"]: 1}


def test_whatever_goes_wrong_in_a_decision_is_no_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    binder = Binder()
    monkeypatch.setattr(binder.world.router, "route", lambda namespace, labels: 1 / 0)
    assert binder.place()["reason"] == "internal-error"


def test_more_nodes_than_may_be_judged_are_no_opinion() -> None:
    assert Binder(nodes=4, limits=AnswerLimits(deadline_s=10, max_names=3)).place()["reason"] == "too-many-names"


def test_candidates_are_ranked_and_nobody_else() -> None:
    binder = Binder(nodes=5)
    answer = binder.place(selector=None, candidates=["n1", "n4", "n1"])
    assert {entry["node"] for entry in answer["nodes"]} == {"n1", "n4"}
    assert (answer["candidates"], answer["outsidePool"]) == (2, 0)


def test_a_selector_names_schedulable_nodes_of_the_pool_by_label() -> None:
    binder = Binder(nodes=1)
    gpu = {"tiphys.io/door": "calls", "gpu": "yes"}
    binder.nodes.put(node_object("g0", gpu))
    binder.nodes.put(node_object("g1", gpu, spec={"unschedulable": True}))
    assert {e["node"] for e in binder.place(selector={"matchLabels": {"gpu": "yes"}})["nodes"]} == {"g0"}
    expression = {"key": "gpu", "operator": "DoesNotExist"}
    assert {e["node"] for e in binder.place(selector={"matchExpressions": [expression]})["nodes"]} == {"n0"}
    assert binder.place(selector={"matchLabels": {"gpu": "no"}})["reason"] == "no-known-node"


def test_a_selector_prefers_nodes_with_room_and_says_nothing_against_full_ones() -> None:
    binder = Binder(nodes=0)
    binder.nodes.put(node_object("small", memory="1Gi"))
    binder.nodes.put(node_object("large", memory="4Gi"))
    nodes = [binder.place(memory="1Gi")["node"] for _ in range(5)]
    assert Counter(nodes) == {"large": 4, "small": 1}
    assert binder.place(memory="1Gi")["reserved"] is True  # nobody has room: the platform may still queue it


def test_the_pool_is_all_there_is() -> None:
    binder = Binder(nodes=2)
    binder.nodes.put(node_object("elsewhere", {}))
    answer = binder.place(selector=None, candidates=["elsewhere", "n0", "never-seen"])
    assert {entry["node"] for entry in answer["nodes"]} == {"n0", "never-seen"}
    assert (answer["outsidePool"], binder.counted("candidates_outside_pool_total")) == (1, 1)
    assert set(binder.state.nodes.row_of) == {"n0", "n1"}
    binder.nodes.put(node_object("n1", {}))  # its label was taken away
    binder.nodes.put(node_object("elsewhere"))
    assert set(binder.state.nodes.row_of) == {"n0", "elsewhere"}
    binder.nodes.listed({"uid-n0"})
    assert (set(binder.pool.labels), binder.pool.outside) == ({"n0"}, set())
    binder.nodes.drop(node_object("n0"))
    assert (set(binder.pool.labels), binder.pool.schedulable) == (set(), set())


def test_instances_that_calls_run_in_count_for_nothing_and_other_pods_for_what_they_request() -> None:
    binder = Binder(nodes=2)
    binder.pods.put(pod_json("instance", spec={"nodeName": "n0"}))
    plain = pod_json("plain", metadata={"labels": {}}, spec={"nodeName": "n1"})
    binder.pods.put(plain)
    nodes = binder.state.nodes
    assert binder.inflight() == {}
    assert [nodes.memory_requested[nodes.row_of[name]] for name in ("n0", "n1")] == [0, 256 * 2**20]
    assert len(binder.pods) == 1
    binder.pods.drop(plain)
    assert nodes.memory_requested.sum() == 0


def test_how_long_instances_take_to_start_is_learnt_for_calls() -> None:
    binder = Binder()
    times = [("PodScheduled", "2026-01-01T00:00:00Z"), ("Ready", "2026-01-01T00:00:03Z")]
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in times]
    binder.pods.put(pod_json("instance", spec={"nodeName": "n0"}, status={"phase": "Running", "conditions": conditions}))
    assert binder.state.init_time_s("default/f") == 3


def test_a_fresh_list_of_pods_leaves_calls_where_they_are() -> None:
    binder = Binder()
    binder.place()
    binder.pods.put(pod_json("gone", metadata={"labels": {}}, spec={"nodeName": "n1"}))
    binder.pods.listed(set())
    assert sum(binder.inflight().values()) == 1
    assert len(binder.pods) == 0


def test_pods_of_our_scheduler_on_the_pool_are_noticed() -> None:
    binder = Binder()
    binder.placer.tick()
    assert (binder.counted("pool_nodes"), binder.counted("pool_nodes_of_both_doors")) == (4, 0)
    for uid, node, scheduler in (("a", "n0", "tiphys"), ("b", "n0", "tiphys"), ("c", "n1", "default-scheduler"), ("d", "other", "tiphys")):
        binder.pods.put(pod_json(uid, spec={"nodeName": node, "schedulerName": scheduler}))
    binder.placer.tick()
    assert binder.counted("pool_nodes_of_both_doors") == 1
    binder.pods.drop(pod_json("a", spec={"nodeName": "n0"}))
    binder.pods.listed({"c", "d"})
    binder.placer.tick()
    assert binder.counted("pool_nodes_of_both_doors") == 0


def test_too_many_open_placements_are_refused_until_one_ends() -> None:
    binder = Binder(max_open=2)
    first = binder.place()["id"]
    binder.place()
    with refused("too-many-open"):
        binder.place()
    with refused("too-many-open"):
        binder.report(new_uid(), node="n0", namespace="default", function="f")
    assert sum(binder.inflight().values()) == len(binder.leases) == 2
    binder.placer.finished(PLATFORM, first)
    assert binder.place()["reserved"] is True


def test_a_tenants_own_limit_leaves_room_for_others() -> None:
    binder = Binder(policies=[ACTIVE, policy_object("theirs", "elsewhere", mode="Active")], max_open=3)
    greedy = Tenant("greedy", (), frozenset({"*"}), Caps(max_open=1))
    binder.place(greedy)
    with refused("too-many-open"):
        binder.place(greedy)
    assert binder.place(OTHER, namespace="elsewhere")["reserved"] is True


def test_where_there_is_no_opinion_there_is_no_limit() -> None:
    binder = Binder(policies=[policy_object(mode="Off")], max_open=1)
    assert [binder.place()["reason"] for _ in range(3)] == ["mode-off"] * 3


def test_a_tenant_sees_and_touches_only_calls_of_its_namespaces() -> None:
    binder = Binder()
    uid = binder.place()["id"]
    with refused("namespace-forbidden"):
        binder.place(OTHER)
    with refused("unknown-placement"):
        binder.placer.explain(OTHER, uid)
    with refused("unknown-placement"):
        binder.report(uid, OTHER, node="n0", namespace="elsewhere", function="f")
    with refused("namespace-forbidden"):
        binder.report(new_uid(), OTHER, node="n0", namespace="default", function="f")
    assert binder.placer.finished(OTHER, uid) == {"id": uid, "released": False}
    assert binder.placer.finished(PLATFORM, uid) == {"id": uid, "released": True}


def test_explain_shows_the_decision_and_the_lease() -> None:
    binder = Binder(lease_s=30)
    answer = binder.place()
    binder.clock.advance(10)
    explained = binder.placer.explain(PLATFORM, answer["id"])
    assert (explained["open"], explained["node"], explained["leaseSecondsLeft"]) == (True, answer["node"], 20)
    assert [entry["node"] for entry in explained["scores"]] == [entry["node"] for entry in answer["nodes"]]
    assert (explained["function"], explained["policy"], explained["outcome"]) == ("default/f", "default/active", "scored")
    json.dumps(explained)


def test_what_is_remembered_stays_bounded() -> None:
    binder = Binder(max_open=5)
    for _ in range(50):
        binder.placer.finished(PLATFORM, binder.place()["id"])
        binder.placer.finished(PLATFORM, "no-such-placement")
    assert len(binder.leases) == 0
    assert len(binder.leases._finished) <= 5
    assert binder.state.pods == 0


def test_whatever_callers_do_the_books_hold_exactly_the_open_calls() -> None:
    random = np.random.default_rng(7)
    binder = Binder(nodes=5, lease_s=10, max_open=20)
    known: list[dict[str, Any]] = []
    for _ in range(600):
        step, memory = random.integers(6), int(random.integers(1, 4)) * 2**20
        answer = known[random.integers(len(known))] if known else {"id": new_uid(), "node": "n0"}
        with contextlib.suppress(Refused):
            match step:
                case 0 | 1:
                    known.append(binder.place(function=f"f{random.integers(3)}", memory=memory))
                case 2:
                    binder.placer.finished(PLATFORM, answer["id"])
                case 3:
                    binder.report(answer["id"], node=f"n{random.integers(5)}")
                case 4:
                    binder.report(answer["id"], node="n0", namespace="default", function="f0", memory=memory)
                case _:
                    binder.clock.advance(float(random.integers(3)))
                    binder.placer.tick()
        leases = [binder.leases.get(uid) for uid in binder.leases.uids]
        assert binder.inflight() == Counter(lease.node for lease in leases if lease)
        assert binder.state.nodes.memory_requested.sum() == sum(lease.memory_bytes for lease in leases if lease)
        assert binder.state.pods == len(leases) <= 20
    assert binder.counted("leases_expired_total") > 0
    assert binder.counted("placements_relearned_total") > 0
