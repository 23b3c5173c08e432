"""Which pods hints know, what ends of pods teach, and that nothing stays of what has gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operator.hints.small import NOW_S, pod, seen
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.quantity import rfc3339
from tiphys_operator.cluster.observed import ObservedCluster, PodSink
from tiphys_operator.hints.pods import HintedPods
from tiphys_operator.hints.run_times import RunTimes


class Scene:
    def __init__(self, *, keeps_finished: bool = False) -> None:
        self.clock, self.times = ManualClock(NOW_S), RunTimes()
        self.pods, self.cluster = HintedPods(self.clock, self.times), ObservedCluster(self.clock)
        self.cluster.keeps_finished = keeps_finished
        self.cluster.followers.append(self.pods)
        self.sink = PodSink(self.cluster)

    def run_s(self) -> float | None:
        """The run time of one end, as three equal ones would tell it."""
        found = RunTimes()
        for run_s in self.times._of.get("shop/encode", ()):
            for _ in range(3):
                found.ended("one", run_s)
        return found.of("one")


@pytest.mark.parametrize(
    ("parts", "ends"),
    [
        ({"owner": "Job"}, True),
        ({"owner": "Job", "spec": {"restartPolicy": "OnFailure"}}, True),
        ({"owner": ""}, True),
        ({"owner": "", "spec": {"restartPolicy": "Always"}}, False),
        ({"owner": "Workflow", "spec": {"restartPolicy": "Never"}}, True),
        ({"owner": "ReplicaSet"}, False),
        ({"owner": "StatefulSet", "spec": {"restartPolicy": "Never"}}, False),
        ({"owner": "DaemonSet"}, False),
        ({"owner": "ReplicaSet", "spec": {"restartPolicy": "OnFailure"}}, False),
    ],
)
def test_pods_end_by_themselves_that_are_not_restarted_and_are_no_replicas(parts: dict[str, Any], ends: bool) -> None:
    assert seen(**parts).ends_by_itself is ends


def test_a_pod_that_ended_unasked_teaches_how_long_it_ran_since_its_kubelet_took_it() -> None:
    scene = Scene()
    scene.sink.put(pod(age_s=10.0))
    scene.clock.advance(30.0)
    scene.sink.drop(pod(age_s=10.0))  # a watch of unfinished pods shows an end as this
    assert scene.run_s() == pytest.approx(40.0, abs=1.0)
    assert len(scene.pods) == 0


def test_where_finished_pods_are_watched_the_end_is_what_its_containers_say() -> None:
    scene = Scene(keeps_finished=True)
    scene.sink.put(pod(age_s=100.0))
    ended = [{"state": {"terminated": {"finishedAt": rfc3339(NOW_S - 40.0)}}}]
    scene.clock.advance(5.0)
    for _ in range(2):
        scene.sink.put(pod(age_s=100.0, status={"phase": "Succeeded", "containerStatuses": ended}))
    scene.sink.drop(pod(age_s=100.0))
    assert scene.run_s() == pytest.approx(60.0, abs=1.0)
    assert len(scene.times._of["shop/encode"]) == 1


@pytest.mark.parametrize("how", ["deleted", "asked before", "unseen", "replica", "never bound"])
def test_other_ways_to_go_teach_nothing(how: str) -> None:
    scene = Scene()
    asked = {"deletionTimestamp": rfc3339(NOW_S)}
    scene.sink.put(pod(owner="ReplicaSet" if how == "replica" else "Job", node="" if how == "never bound" else "n0"))
    if how == "asked before":
        scene.sink.put(pod(metadata=asked))
    if how == "unseen":
        scene.sink.listed(set())
    else:
        scene.sink.drop(pod(metadata=asked if how == "deleted" else {}))
    assert len(scene.times) == 0
    assert len(scene.pods) == 0


def test_pods_are_found_by_node_and_nothing_is_left_of_those_that_went() -> None:
    scene = Scene()
    for name in "abc":
        scene.sink.put(pod(name))
    assert {one.name for one in scene.pods.on_node("n0")} == {"a", "b", "c"}
    assert scene.pods.changed() == ["uid-a", "uid-b", "uid-c"]
    assert scene.pods.changed() == []
    scene.sink.put(pod("a"))
    scene.sink.drop(pod("b"))
    assert scene.pods.changed() == ["uid-a"]
    scene.sink.listed(set())
    assert (len(scene.pods), scene.pods.changed(), scene.pods._on_node) == (0, [], {})


def test_of_a_pod_only_hints_are_kept_and_no_more_of_them_than_they_can_be() -> None:
    one = seen(annotations={"karpenter.sh/do-not-disrupt": "x" * 10_000, "example.com/secret": "s"})
    assert {name: len(value) for name, value in one.annotations.items()} == {"karpenter.sh/do-not-disrupt": 256}
    assert seen(status={"startTime": "nonsense"}).started_s is None
