"""Nodes and pods as the loop sees them, and what nodes cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.operator.selection.small import node
from tiphys_models.cloud.hosts import B2S, B8MS
from tiphys_models.domain.clock import ManualClock
from tiphys_models.domain.errors import InvalidInput
from tiphys_operator.guard import GuardedSink, ObjectGuard
from tiphys_operator.selection.cluster import Cluster, NodeSink, PodSink, live_node, live_pod
from tiphys_operator.selection.prices import PriceTable, read_prices

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


def test_sinks_keep_what_is_there_and_survive_what_they_cannot_read() -> None:
    cluster, clock = Cluster(), ManualClock()
    guard = ObjectGuard(CollectorRegistry())
    nodes, pods = GuardedSink("Node", NodeSink(cluster), guard), GuardedSink("Pod", PodSink(cluster, clock), guard)
    nodes.put(NODE)
    nodes.put({"metadata": {"name": "bad", "uid": "2"}, "status": {"allocatable": {"cpu": "many"}}})
    pods.put(pod())
    assert (set(cluster.nodes), set(cluster.pods)) == ({"n"}, {"u"})
    pods.put(pod("Succeeded"))
    ended = cluster.pods["u"].finished_s
    clock.advance(5.0)
    pods.put(pod("Succeeded"))
    assert cluster.pods["u"].finished_s == ended
    pods.listed(set())
    nodes.drop(NODE)
    assert (cluster.nodes, cluster.pods) == ({}, {})


def test_a_type_has_its_price_and_its_cores_as_capacity_for_requests() -> None:
    kinds = PriceTable().host_types([node("a", "B8ms"), node("b", "B2s")])
    assert list(kinds) == ["B2s", "B8ms"]
    assert (kinds["B8ms"].usd_per_hour, kinds["B8ms"].disk_mib) == (B8MS.usd_per_hour, 8000)


def test_cordoned_nodes_are_paid_but_do_not_say_how_large_their_type_is() -> None:
    small = replace(node("small", "m7", usable=False), cores=1.0)
    table = PriceTable()
    assert table.host_types([small])["m7"].cores == 1.0
    assert table.host_types([small, node("large", "m7")])["m7"].cores == 4.0
    assert table.host_types([node("large", "m7"), replace(small, usable=True)])["m7"].cores == 1.0


def test_an_unknown_type_costs_what_its_cores_would_at_the_dearest() -> None:
    table = PriceTable()
    assert not table.knows("m7")
    kind = table.host_types([node("a", "m7")])["m7"]
    assert kind.usd_per_hour == pytest.approx(4 * max(B2S.usd_per_hour / 2, 0.166 / 4, B8MS.usd_per_hour / 8))
    assert len(kind.power_w) == 11


def test_a_price_file_adds_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text("B2s: {usdPerHour: 0.5}\nm7: {usdPerHour: 0.25, powerWatts: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n")
    table = read_prices(path)
    kinds = table.host_types([node("a", "m7"), node("b", "B2s")])
    assert (kinds["m7"].usd_per_hour, kinds["m7"].power_w[10], kinds["B2s"].usd_per_hour) == (0.25, 11.0, 0.5)
    path.write_text("")
    assert read_prices(path).knows("B8ms")


@pytest.mark.parametrize(
    "text",
    [
        "m7: 3",
        "m7: {usdPerHour: -1}",
        "m7: {usdPerHour: 1, powerWatts: [1, 2]}",
        "m7: {usdPerHour: .inf}",
        "m7: {usdPerHour: .nan}",
        "m7: {usdPerHour: 1, powerWatts: [.nan, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}",
        "[a]",
        "a: {",
    ],
)
def test_a_price_file_that_is_wrong_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"prices\.yaml"):
        read_prices(path)


def test_of_a_node_selector_of_thousands_of_labels_so_many_are_kept() -> None:
    waiting = pod("Pending")
    waiting["spec"] = {**waiting["spec"], "nodeSelector": {f"k{n:05d}": "v" for n in range(5000)}}
    assert len(live_pod(waiting, 0.0).node_selector) == 32
