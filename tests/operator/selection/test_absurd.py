"""Absurd pods and nodes in the state of planners: no interval takes for ever, and others' pods are planned for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.operator.selection.small import Live, node
from tiphys_operator.cluster.live import live_node, live_pod

NOW_S = 1_700_000_000.0
FAST_S = 1.0


def planned(live: Live) -> set[str]:
    """Functions of the next interval's plan, which must come soon."""
    began_s = time.process_time()
    plan = live.interval().plan
    assert time.process_time() - began_s < FAST_S
    return {function.function for function in plan.functions} if plan is not None else set()


def test_a_pod_that_no_node_could_hold_is_left_out_and_the_others_are_planned() -> None:
    live = Live(node("one"), node("two"))
    live.create(1, "absurd", cores=1e9, function="absurd")
    live.create(2, "good", function="good")
    assert planned(live) == {"default/good"}


def test_a_pod_on_a_node_counts_for_no_more_than_the_node_is() -> None:
    live = Live(node("one"), node("two"))
    live.create(1, "absurd", cores=1e9, ram_mib=1e12, function="absurd")
    live.bind("one")
    live.create(2, "good", function="good")
    assert "default/good" in planned(live)
    assert "default/good" in planned(live)


def test_a_function_that_is_said_to_run_for_years_delays_no_interval() -> None:
    live = Live(node("one"), node("two"))
    live.create(1, "slow", function="slow")
    live.interval()
    live.bind("one")
    live.interval()
    live.end()
    live.interval()
    live.memory.profiles["default/slow"].run_s = 6e10
    live.memory.profiles["default/slow"].runs = 9
    live.create(2, "slower", function="slow")
    assert planned(live) == {"default/slow"}


@pytest.mark.parametrize("cpu", ["1e400", "1e20", "9Ei"])
def test_sizes_of_nodes_and_pods_are_held_to_what_machines_are(cpu: str) -> None:
    resources = {"requests": {"cpu": cpu, "memory": "9223372036854775807"}}
    pod = live_pod({"metadata": {"uid": "u", "name": "p"}, "spec": {"containers": [{"resources": resources}]}}, NOW_S)
    host = live_node({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu, "memory": "9Ei"}}})
    assert max(pod.cores, host.cores) <= 4096
    assert max(pod.ram_mib, host.ram_mib) <= 64 * 2**20


def test_times_of_other_ages_are_brought_near() -> None:
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"}]
    ended = [{"state": {"terminated": {"finishedAt": "9999-12-31T23:59:59Z"}}}]
    status: dict[str, Any] = {"phase": "Succeeded", "conditions": conditions, "containerStatuses": ended}
    pod = live_pod({"metadata": {"uid": "u", "creationTimestamp": "0001-01-01T00:00:00Z"}, "spec": {}, "status": status}, NOW_S)
    assert pod.scheduled_s is not None
    assert pod.finished_s is not None
    year_s = 366 * 86_400
    assert NOW_S - year_s <= pod.created_s <= pod.scheduled_s <= pod.finished_s <= NOW_S + 300
