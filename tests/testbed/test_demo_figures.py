"""Arrivals, lanes and figures of the demo; what of the chart it applies."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tests.testbed.demo_runs import decision, record, replayed
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.base.facts import function_of, pod_facts
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.sim.invoker import CallStep, InvokerRules, Usage
from tiphys_testbed.demo.chart import select
from tiphys_testbed.demo.decisions import LaneDecisions, compare, parse_decision
from tiphys_testbed.demo.fleet import RuntimeFleet, load_between
from tiphys_testbed.demo.functions import BY_NAME, image, memory_bytes
from tiphys_testbed.demo.lanes import CONTROL, lane_nodes, make_lanes, pod_manifest, policy_manifest
from tiphys_testbed.demo.results import (
    ReplayResult,
    completion_curve,
    figure,
    inflight_curve,
    lane_result,
    mean_inflight,
    problems,
    summarize,
)
from tiphys_testbed.demo.session import DemoOptions
from tiphys_testbed.demo.tables import verdict

# ---- arrivals --------------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_workload_that_grows_with_the_nodes() -> None:
    first, again, other = (DemoOptions().calls(seed) for seed in (3, 3, 4))
    assert first.arrival_s.tolist() == again.arrival_s.tolist() != other.arrival_s.tolist()
    assert (first.split, len(first), len(DemoOptions(nodes_per_lane=20).calls(3))) == ("test", 295, 590)
    assert DemoOptions().span_s == 59


def test_a_quick_run_has_the_first_calls_of_the_same_workload() -> None:
    whole, quick = DemoOptions().calls(3), DemoOptions(first_s=15.0).calls(3)
    assert quick.arrival_s.tolist() == [at_s for at_s in whole.arrival_s.tolist() if at_s < 15]
    assert quick.noise.tolist() == whole.noise.tolist()[: len(quick)]


# ---- lanes -----------------------------------------------------------------------------------------------------------


def test_lanes_differ_in_the_scheduler_only() -> None:
    control, warm, static = make_lanes([PolicyName.WARM_FIRST, PolicyName.STATIC_RANK])
    assert [lane.scheduler_name for lane in (control, warm, static)] == ["default-scheduler", "tiphys", "tiphys"]
    machines = [[(n.machine, n.zone, n.images) for n in lane_nodes(lane)] for lane in (control, warm, static)]
    assert machines[0] == machines[1] == machines[2]
    assert len(machines[0]) * 4 >= 20
    assert {(machine.cores, machine.memory_bytes) for machine, _, _ in machines[0]} == {(8, 2 * 2**30)}  # the simulator's


def test_the_demo_shows_the_default_candidate_whose_pods_may_wait() -> None:
    lanes = {lane.name: lane.may_wait for lane in make_lanes()}
    assert lanes == {"kube-scheduler": False, "estimator": True, "warm-first": False}


def test_a_fleet_says_of_declared_functions_only_what_calls_are_like() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    fleet = RuntimeFleet({lane.namespace: lane_nodes(lane, 1)}, 0.0)
    assert 'tiphys_runtime_call_profile{function="demo-warm-first/eg"' in fleet.counters["warm-first-0000"].render()
    fleet.declare(["knn"])
    text = fleet.counters["warm-first-0000"].render()
    assert 'tiphys_runtime_call_profile{function="demo-warm-first/knn"' in text
    assert 'tiphys_runtime_call_profile{function="demo-warm-first/eg"' not in text


def test_nodes_that_have_pulled_nothing_list_no_images() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    assert all(node.images for node in lane_nodes(lane, 2))
    assert not any(node.images for node in lane_nodes(lane, 2, pulled=False))


def test_a_shadow_lane_is_asked_and_not_obeyed() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST], shadow=PolicyName.FAASRANK)[-1]
    assert (lane.name, lane.scheduler_name, parse_spec(policy_manifest(lane)).mode) == ("faasrank-shadow", "tiphys", "Shadow")


@pytest.mark.parametrize(
    ("policies", "message"),
    [([], "at least one"), ([PolicyName.GREEDY, PolicyName.GREEDY], "only once")],
)
def test_lanes_that_cannot_be_are_refused(policies: list[PolicyName], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_lanes(policies)


def test_a_call_is_a_pod_of_its_function_and_its_policy_selects_it() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    profile = BY_NAME["knn"]
    pod = pod_manifest(lane, "s0-knn-0001", profile, "s0")
    facts = pod_facts(pod)
    assert function_of(pod["metadata"]) == "demo-warm-first/knn"
    assert (facts.cpu_milli, facts.memory_bytes, facts.images) == (500, memory_bytes(profile), (image(profile),))
    spec = parse_spec(policy_manifest(lane))
    assert (spec.mode, spec.policy) == ("Active", PolicyName.WARM_FIRST)
    assert spec.selector.compiled().matches(pod["metadata"]["labels"])


def test_the_fleet_reports_idle_instances_and_their_absence() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    fleet = RuntimeFleet({lane.namespace: lane_nodes(lane, 3)}, 0.0)
    counters = fleet.counters["warm-first-0000"]
    assert counters.idle_instances["demo-warm-first/eg"] == 0
    fleet.submit("warm-first-0000", "call", BY_NAME["eg"], 1.0)
    assert [(event.call, event.step) for event in fleet.advance(60.0)] == [("call", CallStep.READY), ("call", CallStep.DONE)]
    fleet.publish(60.0)
    assert counters.idle_instances["demo-warm-first/eg"] == 1
    assert 'tiphys_runtime_idle_instances{function="demo-warm-first/eg"} 1' in counters.render()
    busy_s = sum(
        float(s) for s in re.findall(r'node_cpu_seconds_total\{cpu="\d",mode="(?:user|system|irq|softirq)"\} (\S+)', counters.render())
    )
    assert busy_s == pytest.approx(BY_NAME["eg"].cold_work_core_s, rel=1e-3)
    fleet.reset(61.0)
    assert counters.idle_instances["demo-warm-first/eg"] == 0
    assert fleet.next_event_s == math.inf


def test_every_node_reports_what_calls_of_its_functions_are_like() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    text = RuntimeFleet({lane.namespace: lane_nodes(lane, 1)}, 0.0).counters["warm-first-0000"].render()
    series = re.findall(r'tiphys_runtime_call_profile\{function="demo-warm-first/dh",quantity="(\w+)"\} (\S+)', text)
    dh = BY_NAME["dh"]
    assert {quantity: float(value) for quantity, value in series} == pytest.approx(
        {"warm_seconds": dh.warm_s, "cold_seconds": dh.cold_s, "warm_core_seconds": dh.warm_work_core_s,
         "cold_core_seconds": dh.cold_work_core_s, "parallelism": dh.parallelism}
    )  # fmt: skip


def test_without_reuse_no_instance_is_ever_idle() -> None:
    lane = make_lanes([PolicyName.WARM_FIRST])[1]
    fleet = RuntimeFleet({lane.namespace: lane_nodes(lane, 1)}, 0.0, InvokerRules(reuse=False))
    fleet.submit("warm-first-0000", "call", BY_NAME["eg"], 1.0)
    assert [event.step for event in fleet.advance(60.0)] == [CallStep.READY, CallStep.DONE]
    assert fleet.counters["warm-first-0000"].idle_instances["demo-warm-first/eg"] == 0


def test_load_is_the_mean_between_two_looks() -> None:
    before, after = Usage(10.0, 20.0, 0.0, 1, 4, 0.0, 8.0, 0.0, 0.0, 5), Usage(14.0, 28.0, 9.0, 2, 6, 8.0, 10.0, 6.0, 2.0, 7)
    load = load_between(before, after, 2.0, 8)
    assert (load.busy_cores, load.runnable, load.writes_per_s, load.reads_per_s, load.memory_used_bytes) == (2.0, 4.0, 1.0, 4.0, 7)
    assert (load.receive_bytes_per_s, load.transmit_bytes_per_s) == (3.0, 1.0)
    assert load.iowait_cores == pytest.approx(5 * 2e-4)


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_mean_inflight_is_the_integral_over_the_span() -> None:
    records = [record(due_s=0.0, took_s=4.0), record(due_s=8.0, took_s=10.0), record(due_s=9.0, took_s=None)]
    assert mean_inflight(records, 10.0) == pytest.approx((4 + 2 + 1) / 10)


def test_the_curves_count_what_came_and_went() -> None:
    records = [record(due_s=0.0, took_s=2.0), record(due_s=1.0, took_s=0.5), record(due_s=1.0, took_s=None)]
    times, under_way = inflight_curve(records, step_s=1.0)
    assert times[:3] == [0.0, 1.0, 2.0]
    assert under_way[:3] == [1, 3, 1]
    times, shares = completion_curve(records)
    assert times == [0.5, 2.0]
    assert shares == pytest.approx([1 / 3, 2 / 3])


def test_the_last_answer_of_each_pod_is_compared_with_its_node() -> None:
    records = [
        record(pod="hit", node="n"),
        record(pod="miss", node="m"),
        record(pod="again", node="n"),
        record(pod="alone"),
        record(pod="down", node="n"),
    ]
    log = [
        decision("hit"),
        decision("miss"),
        decision("again", best="m", outcome="neutral", reason="deadline"),
        decision("again"),
        decision("down", outcome="fallback", reason="readings-missing"),
        decision("hit", best="x", namespace="demo-other"),
    ]
    found = compare("demo-a", records, [parse_decision(item) for item in log])
    assert (found.scored, found.fallback, found.neutral, found.not_asked) == (3, 1, 0, 1)
    assert (found.best_bound, found.best_other) == (3, 1)
    assert found.reasons == {"readings-missing": 1}


def test_a_neutral_answer_has_no_best_node() -> None:
    assert parse_decision(decision("p", outcome="neutral")).best == ""
    assert parse_decision(decision("p", top=[])).best == ""


def test_in_shadow_what_would_have_been_is_compared() -> None:
    log = [
        decision("same", outcome="neutral", reason="shadow"),
        decision("other", best="m", outcome="neutral", reason="shadow"),
        decision("blind", outcome="neutral", reason="shadow", fallbackReason="readings-missing"),
    ]
    found = compare("demo-a", [record(pod=item["pod"], node="n") for item in log], [parse_decision(item) for item in log])
    assert (found.scored, found.fallback, found.neutral, found.best_bound, found.best_other) == (2, 1, 0, 2, 1)


def test_percent_of_control_is_paired_by_seed() -> None:
    replays = [replayed(0, 2.0, 1.0), replayed(1, 4.0, 4.0)]
    control, warm = summarize(replays, CONTROL)
    assert control.pct_of_control.mean == 100
    assert warm.pct_of_control.mean == pytest.approx((50 + 100) / 2)
    assert warm.mean_s.mean == pytest.approx(2.5)
    low, high = warm.mean_s.low, warm.mean_s.high
    assert low is not None
    assert high is not None
    assert 1.0 <= low <= 2.5 <= high <= 4.0


def test_one_seed_has_no_interval() -> None:
    assert figure([3.0]).low is None


def test_a_lost_call_fails_the_demo_and_says_why() -> None:
    records = [record(CONTROL, took_s=None, problem="not bound within 120 s"), record(CONTROL)]
    found = problems([ReplayResult(0, 10.0, 1.0, (lane_result(CONTROL, 0, records, 10.0, None),), tuple(records))])
    assert len(found) == 1
    assert "1 of 2 calls were never done" in found[0]
    assert "not bound within 120 s" in found[0]


def test_a_policy_that_does_not_decide_fails_the_demo() -> None:
    silent = LaneDecisions(scored=1, neutral=1, reasons={"deadline": 1})
    found = problems([replayed(0, 2.0, 1.0, silent)])
    assert len(found) == 1
    assert "50.0%" in found[0]
    assert "deadline 1" in found[0]
    assert problems([replayed(0, 2.0, 1.0)]) == []


def test_calls_that_one_node_alone_could_take_are_no_problem_but_never_being_asked_is() -> None:
    def lane(not_asked: int) -> ReplayResult:
        said = LaneDecisions(scored=20 - not_asked, not_asked=not_asked)
        records = [record("warm-first", float(i)) for i in range(20)]
        return ReplayResult(0, 10.0, 12.0, (lane_result("warm-first", 0, records, 10.0, said),), tuple(records))

    assert problems([lane(2)]) == []
    assert "never asked about 8 of 20" in problems([lane(8)])[0]
    assert len(problems([lane(20)])) == 2


def test_nothing_done_gives_figures_that_say_nothing() -> None:
    empty = lane_result("a", 0, [record(took_s=None)], 10.0, None)
    assert math.isnan(empty.mean_s)
    replay = ReplayResult(0, 10.0, 1.0, (lane_result(CONTROL, 0, [record(CONTROL, took_s=None)], 10.0, None),), ())
    assert verdict(summarize([replay], CONTROL)) == "No call was done."


# ---- the chart -------------------------------------------------------------------------------------------------------


def document(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name} | more.pop("metadata", {}), **more}


def test_of_the_chart_only_accounts_roles_and_configuration_are_applied() -> None:
    config = document("ConfigMap", "tiphys-scheduler-config", data={"config.yaml": "kind: KubeSchedulerConfiguration\n"})
    hook = document("ServiceAccount", "hook", metadata={"annotations": {"helm.sh/hook": "pre-delete"}})
    crd = document("CustomResourceDefinition", "crd")
    found = select([document("Deployment", "d"), config, hook, None, document("Role", "r"), crd])
    assert [d["kind"] for d in found.documents] == ["CustomResourceDefinition", "Role", "ConfigMap"]
    assert found.scheduler_config == "kind: KubeSchedulerConfiguration\n"


def test_a_chart_without_what_is_needed_is_refused() -> None:
    crd = document("CustomResourceDefinition", "crd")
    with pytest.raises(ClusterError, match="KubeSchedulerConfiguration"):
        select([crd])
    with pytest.raises(ClusterError, match="CustomResourceDefinition"):
        select([document("ConfigMap", "tiphys-scheduler-config", data={"c": "kind: KubeSchedulerConfiguration"})])
