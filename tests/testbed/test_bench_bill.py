"""The benchmark of the node bill: its traces, its arithmetic, its pairs, its journal, and what its watches make of events."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiphys_models.base.errors import InvalidInput
from tiphys_testbed.bench import bill, bill_results
from tiphys_testbed.bench.bill_books import Books, ClaimLife, PodLife, missed_share, node_figures, pod_figures, shortfall, unbound
from tiphys_testbed.bench.bill_gate import Room, Waiting, let_go
from tiphys_testbed.bench.bill_journal import Journal, RunKey
from tiphys_testbed.bench.bill_probe import choices_digest
from tiphys_testbed.bench.bill_run import actions, histogram_p50_ms, marks, shifted
from tiphys_testbed.bench.bill_trace import BatchPod, Service, Trace, bound_usd, make_trace, usd_per_hour
from tiphys_testbed.bench.bill_watch import CLAIMS, PODS, Watcher
from tiphys_testbed.bench.bill_worlds import (
    BAR,
    KIND_LABEL,
    LANES,
    REGULAR_WORLDS,
    TRACE_LABEL,
    WORLDS,
    Lane,
    batch_pod,
    node_pool,
    scheduler_config,
)
from tiphys_testbed.tools.substitutions import MODEL_TIME

HOUR_S = 3600.0
FACTOR = float(MODEL_TIME)
KEY = RunKey("h", 0, BAR, 0, "abc")


def trace(batch: tuple[BatchPod, ...] = (), services: tuple[Service, ...] = (), window_s: float = HOUR_S) -> Trace:
    return Trace(0, lead_s=300.0, window_s=window_s, tail_s=300.0, batch=batch, services=services)


def job(name: str = "b0", arrive_s: float = 0.0, run_s: float = 600.0, due_s: float = 1200.0) -> BatchPod:
    return BatchPod(name, "app", arrive_s, run_s, due_s, 1000, 1024)


def life(name: str = "b0-0", kind: str = "batch", created_s: float = 0.0, **changes: Any) -> PodLife:
    return PodLife(name, kind, 1000, created_s, **changes)


def row(lane: str, seed: int, usd: float, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"world": "h", "lane": lane, "seed": seed, "usd": usd, "node_hours": usd, "energy_kwh": usd, "bound_usd": 0.5}
    made |= {"evictions_batch": 0, "evictions_service": 3, "lost_core_hours": 0.0, "missed_share": 0.0, "service_shortfall": 0.01}
    made |= {"pending_p95_s": 60.0, "decision_p50_ms": 0.5, "claims": 20, "cpu_share": 0.7, "repetition": 0, "void": False}
    return made | changes


# ---- traces -----------------------------------------------------------------------------------------------------------


def test_a_seed_is_one_trace_and_another_seed_another() -> None:
    made = [make_trace(seed, lead_s=300.0, window_s=2250.0, tail_s=300.0) for seed in (3, 3, 4)]
    assert made[0].digest == made[1].digest != made[2].digest
    assert all(-300.0 <= pod.arrive_s < 1950.0 and pod.due_s > pod.arrive_s + pod.run_s for pod in made[0].batch)
    assert 120 < len(made[0].batch) < 260


def test_run_times_of_an_application_are_alike() -> None:
    made = make_trace(1, lead_s=0.0, window_s=20_000.0, tail_s=0.0)
    own = [pod.run_s for pod in made.batch if pod.application == made.batch[0].application]
    spread = (sum((run_s / (sum(own) / len(own)) - 1) ** 2 for run_s in own) / len(own)) ** 0.5
    assert 0.2 < spread < 0.4


def test_the_bound_is_what_is_asked_for_while_it_is_asked_for() -> None:
    service = Service("web", 500, 1024, ((-1e9, 2), (1800.0, 4)))
    batch = (job(arrive_s=-300.0, run_s=600.0), job("b1", arrive_s=3300.0, run_s=600.0))
    wanted = 600.0 / HOUR_S * usd_per_hour(1000, 1024) + (0.5 * 2 + 0.5 * 4) * usd_per_hour(500, 1024)
    assert bound_usd(trace(batch, (service,))) == pytest.approx(wanted)


def test_services_are_started_before_and_only_changed_within_a_run() -> None:
    made = make_trace(0, lead_s=300.0, window_s=2250.0, tail_s=300.0)
    found = actions(made)
    assert [action.at_s for action in found] == sorted(action.at_s for action in found)
    assert sum(action.pod is None for action in found) == 5
    assert made.services[0].replicas_at(-300.0) == made.services[0].steps[0][1]


# ---- books ------------------------------------------------------------------------------------------------------------


def test_a_node_is_paid_for_as_long_as_its_claim_lives_within_the_window() -> None:
    claims = [
        ClaimLife("a", -600.0, 1800.0, 0.1, 4.0),
        ClaimLife("b", 1800.0, math.inf, 0.2, 8.0),
        ClaimLife("c", -600.0, -10.0, 9.0, 8.0),
    ]
    found = node_figures(claims, [life(bound_s=0.0, ended_s=1800.0)], HOUR_S)
    assert (found["usd"], found["node_hours"], found["claims"], found["most_nodes"]) == (pytest.approx(0.15), pytest.approx(1.0), 2, 1)
    assert found["cpu_share"] == pytest.approx(0.5 / 6.0)


def test_what_an_evicted_batch_pod_had_done_is_lost_and_a_services_is_not() -> None:
    pods = [
        life(bound_s=0.0, ended_s=1800.0, evicted=True, trace_name="b0"),
        life("web-1", "web", bound_s=0.0, ready_s=0.0, ended_s=1800.0, evicted=True),
        life("late", bound_s=10.0, ended_s=5000.0, evicted=True),
    ]
    found = pod_figures(trace((job(),)), pods)
    assert (found["evictions_batch"], found["evictions_service"], found["lost_core_hours"]) == (1, 1, pytest.approx(0.5))


def test_a_deadline_is_missed_by_who_has_not_succeeded_by_then() -> None:
    batch = (job("b0"), job("b1"), job("b2"), job("b3", due_s=2 * HOUR_S))
    pods = [
        life("b0-0", ended_s=1100.0, succeeded=True, trace_name="b0"),
        life("b1-0", ended_s=900.0, evicted=True, trace_name="b1"),
        life("b1-1", ended_s=1300.0, succeeded=True, trace_name="b1"),
    ]
    assert missed_share(trace(batch), pods) == pytest.approx(2 / 3)


def test_a_service_lacks_what_is_wanted_and_not_ready() -> None:
    service = Service("web", 500, 1024, ((-1e9, 2),))
    pods = [life("w0", "web", ready_s=-5.0), life("w1", "web", ready_s=900.0), life("w2", "web", ready_s=1800.0, ended_s=2000.0)]
    assert shortfall((service,), pods, HOUR_S) == pytest.approx(900.0 / 7200.0, abs=0.002)


def test_a_pod_without_a_node_makes_a_run_void_unless_it_came_at_the_very_end() -> None:
    pods = [life("early", created_s=100.0), life("gone", created_s=100.0, ended_s=200.0), life("last", created_s=3400.0)]
    assert unbound(trace(), pods) == 1


def test_books_are_carried_over_into_model_time() -> None:
    books = Books({"a": ClaimLife("a", 99.0, 101.0)}, {"p": life("p", created_s=100.0, bound_s=102.0)})
    found = shifted(books, 100.0, FACTOR)
    assert (found.claims["a"].begin_s, found.claims["a"].end_s) == (-FACTOR, FACTOR)
    assert (found.pods["p"].bound_s, found.pods["p"].ended_s) == (2 * FACTOR, math.inf)


# ---- what is seen -----------------------------------------------------------------------------------------------------


class QuietApi:
    """An API server on which nothing is and nothing happens."""

    def snapshot(self, path: str) -> tuple[list[dict[str, Any]], str]:
        assert path in (CLAIMS, PODS)
        return [], "1"

    def watch(self, *_: Any) -> list[dict[str, Any]]:
        return []


def seen_pod(phase: str = "Pending", node: str = "", conditions: tuple[str, ...] = (), **metadata: Any) -> dict[str, Any]:
    body = batch_pod(job(), 0, FACTOR, {})
    body["metadata"] |= metadata
    body["spec"]["nodeName"] = node
    return body | {"status": {"phase": phase, "conditions": [{"type": kind, "status": "True"} for kind in conditions]}}


def watcher() -> tuple[Watcher, list[str]]:
    lost: list[str] = []
    return Watcher(QuietApi(), lambda life: lost.append(life.name)), lost  # type: ignore[arg-type]


def test_a_pod_is_bound_ready_and_done_when_that_is_first_seen() -> None:
    made, lost = watcher()
    for at_s, event in enumerate([seen_pod(), seen_pod(node="n0"), seen_pod("Running", "n0", ("Ready",)), seen_pod("Succeeded", "n0")]):
        made.see_pod("MODIFIED", event, float(at_s))
    made.see_pod("DELETED", seen_pod("Succeeded", "n0", ("DisruptionTarget",)), 9.0)
    found = made.books.pods["b0-0"]
    assert (found.created_s, found.bound_s, found.ready_s, found.ended_s) == (0.0, 1.0, 2.0, 3.0)
    assert (found.succeeded, found.evicted, found.trace_name, lost) == (True, False, "b0", [])


def test_an_evicted_batch_pod_is_told_of_once_and_a_deleted_one_is_not_called_evicted() -> None:
    made, lost = watcher()
    made.see_pod("ADDED", seen_pod("Running", "n0", ("Ready",)), 0.0)
    made.see_pod("MODIFIED", seen_pod("Running", "n0", ("Ready", "DisruptionTarget"), deletionTimestamp="now"), 1.0)
    made.see_pod("DELETED", seen_pod("Running", "n0", ("DisruptionTarget",), deletionTimestamp="now"), 2.0)
    made.see_pod("DELETED", seen_pod("Running", "n0", name="b1-0"), 3.0)
    assert (made.books.pods["b0-0"].evicted, made.books.pods["b0-0"].ended_s, lost) == (True, 1.0, ["b0-0", "b1-0"])
    assert not made.books.pods["b1-0"].evicted


def test_a_claim_lives_from_its_first_event_to_its_last_at_the_price_on_its_label() -> None:
    made, _ = watcher()
    made.see_claim("ADDED", {"metadata": {"name": "c"}}, 1.0)
    labels = {"eks-node-viewer/instance-price": "0.108590", "karpenter.kwok.sh/instance-cpu": "4"}
    made.see_claim("MODIFIED", {"metadata": {"name": "c", "labels": labels}}, 1.1)
    made.see_claim("DELETED", {"metadata": {"name": "c", "labels": labels}}, 7.0)
    assert made.books.claims["c"] == ClaimLife("c", 1.0, 7.0, 0.10859, 4.0)


# ---- worlds and lanes -------------------------------------------------------------------------------------------------


def test_every_time_of_a_world_is_whole_seconds_of_the_wall_clock() -> None:
    for world in WORLDS.values():
        made = {thing["kind"]: thing["spec"] for thing in node_pool(world)}
        assert made["NodePool"]["disruption"]["consolidateAfter"] == f"{world.consolidate_after_s / world.factor:g}s"
        assert made["KWOKNodeClass"]["nodeRegistrationDelay"] == f"{world.registration_s / world.factor:g}s"


def test_in_real_time_karpenter_is_the_one_that_everybody_builds_and_gathers_pods_as_long_as_it_does_by_itself() -> None:
    world = WORLDS["real-time"]
    assert (world.program, world.factor, world.wall(60.0)) == ("karpenter-kwok", 1, "60s")
    assert world.karpenter_settings == {"BATCH_IDLE_DURATION": "1s", "BATCH_MAX_DURATION": "10s"}
    assert "real-time" not in REGULAR_WORLDS


def test_the_bar_is_the_stock_profile_with_that_strategy_and_our_lanes_ask_the_extender(tmp_path: Path) -> None:
    bar = yaml.safe_load(scheduler_config(LANES[BAR], tmp_path, None))["profiles"][0]
    assert bar["pluginConfig"][0]["args"]["scoringStrategy"]["type"] == "MostAllocated"
    assert "plugins" not in bar
    ours = yaml.safe_load(scheduler_config(LANES["lifetimes"], tmp_path, "http://127.0.0.1:1"))
    assert "pluginConfig" not in ours["profiles"][0]
    assert ours["extenders"][0]["prioritizeVerb"] == "prioritize"


def test_protection_is_the_worlds_until_enough_pods_of_the_application_have_ended() -> None:
    learned = Lane("one", protect="learned")
    assert marks(WORLDS["h"], Lane("one"), []) == {"karpenter.sh/do-not-disrupt": "true"}
    assert marks(WORLDS["e"], learned, [10.0, 11.0]) == {}
    assert marks(WORLDS["e"], learned, [float(seconds) for seconds in range(1, 11)]) == {"karpenter.sh/do-not-disrupt": "10s"}


def test_a_batch_pod_runs_for_a_fifteenth_of_its_time() -> None:
    made = batch_pod(job(run_s=600.0), 2, FACTOR, {"a": "b"})
    assert made["metadata"]["name"] == "b0-2"
    assert made["metadata"]["annotations"] == {"tiphys.io/simulated-run-time": "40.000s", "a": "b"}
    assert (made["metadata"]["labels"][KIND_LABEL], made["metadata"]["labels"][TRACE_LABEL]) == ("batch", "b0")


# ---- pairs and journal ------------------------------------------------------------------------------------------------


def test_every_seed_plays_each_lane_once_and_one_of_them_twice_in_turn() -> None:
    lanes = ("kube-default", BAR, "most-allocated-only")
    found = bill.order(bill.BillPlan((0, 1, 2), ("h",), lanes))
    assert [lane for _, seed, lane, again in found if seed == 1 and not again] == [BAR, "most-allocated-only", "kube-default"]
    assert [lane for _, _, lane, again in found if again] == list(lanes)


def test_a_lane_that_only_protects_is_left_out_where_all_is_protected() -> None:
    plan = bill.BillPlan((0,), ("h", "e"), tuple(LANES))
    played = {(world, lane) for world, _, lane, _ in bill.order(plan)}
    assert ("e", f"{BAR}+protect") in played
    assert ("h", f"{BAR}+protect") not in played


def test_what_decides_a_run_decides_its_key() -> None:
    plan = bill.BillPlan((0,))
    one, other = plan.trace(0), plan.trace(1)
    lane = LANES["kube-default"]
    keys = {
        bill.digest_of("p", one, "h", lane),
        bill.digest_of("q", one, "h", lane),
        bill.digest_of("p", other, "h", lane),
        bill.digest_of("p", one, "e", lane),
        bill.digest_of("p", one, "h", LANES[BAR]),
    }
    assert len(keys) == 5
    assert bill.digest_of("p", one, "h", lane) in keys


def test_policies_that_decide_otherwise_have_other_digests_and_one_has_the_same_twice() -> None:
    names = ("most-allocated", "lifetimes", "consolidation-aware")
    found = [choices_digest(name) for name in names]
    choices_digest.cache_clear()
    assert [choices_digest(name) for name in names] == found
    assert len(set(found)) == 3


def test_the_journal_goes_on_where_it_was_broken_off_and_does_not_count_void_runs(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "bill.jsonl"
    first = Journal(file)
    first.add(KEY, row(BAR, 0, 0.0, void=True))
    assert (first.done(KEY), first.voids(KEY)) == (None, 1)
    first.add(KEY, row(BAR, 0, 0.7))
    again = Journal(file)
    found = again.done(KEY)
    assert found is not None
    assert (found["usd"], len(again.found([KEY]))) == (0.7, 2)
    assert again.done(replace(KEY, digest="other")) is None


def test_a_file_that_is_no_journal_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "bill.jsonl"
    file.write_text('{"key": {"world": "h"}}\n')
    with pytest.raises(InvalidInput, match=r"bill\.jsonl:1"):
        Journal(file)


# ---- figures ----------------------------------------------------------------------------------------------------------

ROWS = [
    row(lane, seed, base * (1 + 0.1 * seed))
    for seed in range(10)
    for lane, base in ((BAR, 1.0), ("lifetimes", 0.95), ("kube-default", 1.1))
]
AGAIN = [row(BAR, seed, 1.01 * (1 + 0.1 * seed), repetition=1) for seed in range(3)]


def test_bills_are_compared_on_the_same_trace_and_void_runs_are_left_out() -> None:
    assert bill_results.ratios(ROWS, "h", "lifetimes") == pytest.approx([0.95] * 10)
    assert len(bill_results.ratios([*ROWS, row("lifetimes", 10, 0.1), row(BAR, 10, 1.0, void=True)], "h", "lifetimes")) == 10


def test_a_difference_is_told_only_beyond_what_a_lane_differs_from_itself() -> None:
    assert bill_results.noise(AGAIN, "h") is None
    assert not bill_results.told(ROWS, "h", "lifetimes")  # nobody knows the noise
    assert bill_results.told([*ROWS, *AGAIN], "h", "lifetimes")
    loud = [row(BAR, 0, 1.2, repetition=1)]
    assert not bill_results.told([*ROWS, *loud], "h", "lifetimes")


def test_the_claims_hold_our_lanes_to_the_bar_and_to_what_was_lost() -> None:
    found = {claim.id: claim for claim in bill_results.claims([*ROWS, *AGAIN])}
    assert found["bill-h-lifetimes-usd-ci95-high"].holds
    assert found["bill-cheapest-over-most-allocated"].value == pytest.approx(0.95)
    assert not any("kube-default" in name for name in found)
    dear = [one | {"lost_core_hours": 1.0} if one["lane"] == "lifetimes" else one for one in [*ROWS, *AGAIN]]
    assert not {claim.id: claim for claim in bill_results.claims(dear)}["bill-h-lifetimes-lost-core-hours-more"].holds


def test_tables_have_a_line_for_each_lane_and_say_the_noise() -> None:
    lines = bill_results.table([*ROWS, *AGAIN])
    assert [line["lane"] for line in lines] == [f"`{BAR}`", "`lifetimes`", "`kube-default`"]
    assert lines[1][f"over `{BAR}`"].startswith("0.950")
    assert lines[0]["runs"] == 10  # without those for the noise
    assert bill_results.noise_table([*ROWS, *AGAIN])[0]["mean difference"] == "1.0%"
    assert {"world": "h", "lane": "any, once more", "metric": "noise", "mean": 0.01} in bill_results.summarise([*ROWS, *AGAIN])


def test_the_median_of_a_histogram_lies_on_a_line_within_its_bucket() -> None:
    name = "scheduler_scheduling_algorithm_duration_seconds_bucket"
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float]
    samples = {(name, (("le", edge),)): count for edge, count in (("0.001", 20.0), ("0.002", 80.0), ("+Inf", 100.0))}
    assert histogram_p50_ms(samples) == pytest.approx(1.5)
    assert histogram_p50_ms({}) is None


# ---- waiting ----------------------------------------------------------------------------------------------------------


def some_node(name: str = "n0", cpu: str = "2", *, taints: tuple[str, ...] = (), ready: str = "True") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"cpu": cpu, "memory": "8Gi"}}
    return {"metadata": {"name": name}, "spec": {"taints": [{"key": "k", "effect": effect} for effect in taints]}, "status": status}


def wanting(name: str) -> dict[str, Any]:
    return batch_pod(replace(job(), name=name), 0, FACTOR, {})


def test_room_that_was_taken_is_not_given_twice_and_comes_back_with_the_pods_end() -> None:
    room = Room()
    room.see_node("ADDED", some_node(cpu="1500m"))
    assert room.take(wanting("a"))
    assert not room.take(wanting("b"))
    bound = wanting("a")
    bound["spec"]["nodeName"] = "n0"
    room.see_pod("MODIFIED", bound)
    assert not room.take(wanting("b"))
    room.see_pod("MODIFIED", bound | {"status": {"phase": "Succeeded"}})
    assert room.take(wanting("b"))


@pytest.mark.parametrize("node", [some_node(taints=("NoSchedule",)), some_node(ready="False"), some_node(cpu="900m")])
def test_a_node_that_repels_is_not_ready_or_is_small_has_no_room(node: dict[str, Any]) -> None:
    room = Room()
    room.see_node("ADDED", node)
    assert not room.take(wanting("a"))


def test_a_pod_takes_the_node_that_it_leaves_least_on() -> None:
    room = Room()
    for name, cpu in (("large", "8"), ("small", "1")):
        room.see_node("ADDED", some_node(name, cpu))
    assert room.take(wanting("a"))
    room.see_node("DELETED", some_node("large", "8"))
    assert not room.take(wanting("b"))


def test_who_waits_goes_when_there_is_room_or_the_time_is_over() -> None:
    room = Room()
    room.see_node("ADDED", some_node(cpu="1"))
    patient, overdue = Waiting(wanting("a"), 100.0), Waiting(wanting("b"), 10.0)
    late = Waiting(wanting("c"), 100.0)
    assert let_go([patient, overdue, late], room, 20.0) == [patient, overdue]
