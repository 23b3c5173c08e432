"""A few facts of nodes and pods."""

from __future__ import annotations

from typing import Any

from tiphys_operator.cluster.live import live_node, live_pod

NODE: dict[str, Any] = {
    "metadata": {"name": "n", "uid": "1", "labels": {"node.kubernetes.io/instance-type": "B2s", "pool": "a"}},
    "spec": {},
    "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


def pod(phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p", "namespace": "a", "uid": "u", "labels": {"tiphys.io/function": "f"}, "creationTimestamp": "2027-01-15T08:00:00Z",
        },
        "spec": {"nodeName": "n", "nodeSelector": {"pool": "a"}, "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        "status": {"phase": phase, **status},
    }  # fmt: skip


def test_a_node_is_a_host_unless_something_keeps_pods_out() -> None:
    found = live_node(NODE)
    assert (found.instance_type, found.cores, found.ram_mib, found.usable) == ("B2s", 2.0, 4096.0, True)
    assert not live_node(NODE | {"spec": {"unschedulable": True}}).usable
    assert not live_node(NODE | {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}).usable
    assert live_node(NODE | {"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}).usable
    assert not live_node(NODE | {"status": {**NODE["status"], "allocatable": {"cpu": "0", "memory": "4Gi"}}}).usable


def test_a_pod_says_when_it_ended_or_ended_when_it_was_seen() -> None:
    now_s = 1_800_000_060.0
    assert live_pod(pod(), now_s).finished_s is None
    state = {"terminated": {"finishedAt": "2027-01-15T08:00:30Z"}}
    assert live_pod(pod("Succeeded", containerStatuses=[{"state": state}]), now_s).finished_s == 1_800_000_030.0
    assert live_pod(pod("Failed"), now_s).finished_s == now_s


def test_of_a_node_selector_of_thousands_of_labels_so_many_are_kept() -> None:
    waiting = pod("Pending")
    waiting["spec"] = {**waiting["spec"], "nodeSelector": {f"k{n:05d}": "v" for n in range(5000)}}
    assert len(live_pod(waiting, 0.0).node_selector) == 32
