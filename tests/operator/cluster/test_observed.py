"""One observed cluster: what is kept of pods and nodes, for whom, and that nothing of what has gone is left behind."""

from __future__ import annotations

import json
from typing import Any

from prometheus_client import CollectorRegistry

from tests.operator.cluster.test_live import NODE, pod
from tests.operator.scaling.small import pod_object
from tiphys_models.base.clock import ManualClock
from tiphys_models.kube.guard import GuardedSink
from tiphys_operator.cluster.observed import FINISHED_FOR_S, NodeSink, ObservedCluster, PodSink
from tiphys_operator.object_guard import ObjectGuard

WEB = ("default", "Deployment", "web")


def finished(name: str) -> dict[str, Any]:
    return pod_object(name, status={"phase": "Succeeded"})


def test_sinks_keep_what_is_there_and_survive_what_they_cannot_read() -> None:
    clock = ManualClock(1_800_000_000.0)
    cluster, guard = ObservedCluster(clock), ObjectGuard(CollectorRegistry())
    cluster.keeps_finished = True
    nodes, pods = GuardedSink("Node", NodeSink(cluster), guard), GuardedSink("Pod", PodSink(cluster), guard)
    nodes.put(NODE)
    nodes.put({"metadata": {"name": "bad", "uid": "2"}, "status": {"allocatable": {"cpu": "many"}}})
    pods.put(pod())
    assert (set(cluster.nodes), set(cluster.pods)) == ({"n"}, {"u"})
    pods.put(pod("Succeeded"))
    ended = cluster.pods["u"].finished_s
    assert ended is not None
    clock.advance(5.0)
    pods.put(pod("Succeeded"))
    assert cluster.pods["u"].finished_s == ended
    pods.listed(set())
    nodes.drop(NODE)
    assert (cluster.nodes, cluster.pods) == ({}, {})


def test_a_node_that_was_made_again_under_its_name_outlives_the_former_one() -> None:
    cluster = ObservedCluster()
    nodes = NodeSink(cluster)
    again = {**NODE, "metadata": {**NODE["metadata"], "uid": "another"}}
    nodes.put(NODE)
    nodes.put(again)  # a list, after the watch was away
    nodes.listed({"another"})
    assert set(cluster.nodes) == {"n"}
    nodes.drop(NODE)
    assert set(cluster.nodes) == {"n"}
    nodes.drop(again)
    assert cluster.nodes == {}


def test_what_gone_pods_used_leaves_nothing_behind() -> None:
    cluster = ObservedCluster()
    cluster.want(*WEB)
    for n in range(5):
        cluster.put_pod(pod_object(f"web-{n}", node=f"n{n}"))
    assert cluster.used_m == {f"n{n}": 50 for n in range(5)}
    assert [(group.labels["app"], group.count) for group in cluster.groups("default")] == [("web", 5)]
    for n in range(5):
        cluster.drop_pod(f"web-{n}")
    assert (cluster.used_m, cluster.pods, cluster.pods_kept(), cluster.owned(*WEB), cluster.groups("default")) == ({}, {}, 0, (), ())


def test_pods_that_have_ended_are_not_kept_unless_somebody_keeps_books_and_then_for_a_while() -> None:
    clock = ManualClock(1_800_000_000.0)
    cluster = ObservedCluster(clock)
    cluster.put_pod(pod_object("web-1"))
    cluster.put_pod(finished("web-1"))
    assert (cluster.pods, cluster.used_m) == ({}, {})
    cluster.keeps_finished = True
    cluster.put_pod(finished("web-2"))
    assert (set(cluster.pods), cluster.used_m, cluster.groups("default")) == ({"web-2"}, {}, ())
    clock.advance(FINISHED_FOR_S + 1)
    cluster.put_pod(finished("web-3"))
    assert set(cluster.pods) == {"web-3"}


def test_only_pods_that_a_target_owns_are_kept_whole() -> None:
    cluster = ObservedCluster()
    cluster.want(*WEB)
    cluster.put_pod(pod_object("web-1"))
    cluster.put_pod(pod_object("job-1", metadata={"ownerReferences": [{"kind": "Job", "name": "web", "controller": True}]}))
    cluster.put_pod(pod_object("else-1", metadata={"namespace": "else"}))
    owner = {"kind": "StatefulSet", "name": "db", "controller": True}
    cluster.put_pod(pod_object("db-0", metadata={"ownerReferences": [owner]}))
    assert (cluster.pods_kept(), len(cluster.pods)) == (1, 4)
    assert [p.name for p in cluster.owned(*WEB)] == ["web-1"]
    cluster.unwant(*WEB)
    assert (cluster.pods_kept(), len(cluster.pods)) == (0, 4)


def test_a_workload_that_is_wanted_late_is_read_once_and_what_the_watch_said_since_counts() -> None:
    cluster = ObservedCluster()
    for name in ("stays", "goes", "moves"):
        cluster.put_pod(pod_object(name))
    assert cluster.unread() == frozenset()
    cluster.want(*WEB)
    assert cluster.unread() == {"default"}
    cluster.drop_pod("goes")
    cluster.put_pod(pod_object("moves", node="n2"))
    for name in ("stays", "goes", "moves"):
        cluster.read(pod_object(name))
    cluster.have_read("default")
    assert (set(cluster.pods), cluster.pods_kept(), cluster.used_m) == ({"stays", "moves"}, 2, {"n1": 50, "n2": 50})
    assert (cluster.unread(), {p.name: p.node for p in cluster.owned(*WEB)}["moves"]) == (frozenset(), "n2")


def test_two_policies_for_one_workload_keep_its_pods_until_both_are_gone() -> None:
    cluster = ObservedCluster()
    for _ in range(2):
        cluster.want(*WEB)
    cluster.put_pod(pod_object("web-1"))
    cluster.unwant(*WEB)
    assert cluster.pods_kept() == 1
    cluster.unwant(*WEB)
    assert cluster.pods_kept() == 0


def test_whoever_owns_a_pod_is_told_of_it() -> None:
    cluster, told = ObservedCluster(), list[tuple[str, str, str]]()
    cluster.on_pod.append(told.append)
    cluster.put_pod(pod_object("web-1"))
    assert told == []
    cluster.want(*WEB)
    cluster.put_pod(pod_object("web-1"))
    assert told == [WEB]


def test_replicas_share_their_labels() -> None:
    cluster = ObservedCluster()
    cluster.want(*WEB)
    for n in range(3):
        cluster.put_pod(json.loads(json.dumps(pod_object(f"web-{n}"))))
    assert len({id(found.labels) for found in cluster.pods.values()} | {id(found.labels) for found in cluster.owned(*WEB)}) == 1
