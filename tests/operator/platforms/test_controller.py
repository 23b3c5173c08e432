"""From pods that the watch shows to what Prometheus scrapes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.operator.platforms.recorded import stats
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_operator.cluster.instances import Instance, instance_of
from tiphys_operator.cluster.observed import ObservedCluster
from tiphys_operator.cluster.watching import ClusterWatch
from tiphys_operator.platforms.asking import InstanceReader
from tiphys_operator.platforms.controller import PlatformsController
from tiphys_operator.platforms.knative import InstanceStats, stats_of
from tiphys_operator.platforms.metrics import PlatformMetrics


def knative_pod(name: str = "a", **changes: Any) -> dict[str, Any]:
    """A pod of a revision, ready, as the API server sends it."""
    labels = {"serving.knative.dev/revision": "resize-00001", "tiphys.io/function": "resize"}
    owner = {"kind": "ReplicaSet", "name": "resize-00001-deployment-7d9c5b", "controller": True}
    return {
        "metadata": {
            "name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels, "ownerReferences": [owner],
        } | changes.pop("metadata", {}),
        "spec": {"nodeName": "n0", "containers": []} | changes.pop("spec", {}),
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]} | changes.pop("status", {}),
    }  # fmt: skip


def test_a_ready_pod_of_a_revision_is_an_instance_of_what_its_label_or_its_owner_says() -> None:
    assert instance_of(knative_pod()) == Instance("a", "shop/resize", "n0", "10.0.0.7")
    bare = instance_of(knative_pod(metadata={"labels": {"serving.knative.dev/revision": "resize-00001"}}))
    assert bare is not None
    assert bare.function == "shop/ReplicaSet/resize-00001-deployment-7d9c5b", "as for every pod without the label"


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"labels": {"tiphys.io/function": "resize"}}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        {"status": {"conditions": None}},
        {"status": {"podIP": ""}},
        {"spec": {"nodeName": ""}},
        {"spec": {"hostNetwork": True}},
        {"metadata": {"labels": {"serving.knative.dev/revision": "r"}, "ownerReferences": []}},
    ],
)
def test_a_pod_that_no_call_can_be_given_to_is_no_instance(changes: dict[str, Any]) -> None:
    assert instance_of(knative_pod(**changes)) is None


def test_instances_come_and_go_with_their_pods_and_only_where_somebody_asks_for_them() -> None:
    cluster = ObservedCluster()
    cluster.put_pod(knative_pod("before"))
    assert cluster.instances == {}
    cluster.keeps_instances = True
    for name in "abc":
        cluster.put_pod(knative_pod(name))
    assert set(cluster.instances) == {"uid-a", "uid-b", "uid-c"}
    cluster.put_pod(knative_pod("a", status={"conditions": [{"type": "Ready", "status": "False"}]}))
    cluster.put_pod(knative_pod("b", status={"phase": "Failed"}))
    cluster.drop_pod("uid-c")
    assert cluster.instances == {}


class Answers:
    """A reader whose instances say what was recorded; those not named are silent."""

    def __init__(self) -> None:
        self.says: dict[str, str] = {}
        self.takes_s, self.clock = 0.0, ManualClock(1_000.0)
        self.asked = asyncio.Event()

    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing was opened."""

    async def ask(self, instances: dict[str, Instance]) -> dict[str, InstanceStats]:
        self.asked.set()
        self.clock.advance(self.takes_s)
        return {uid: stats_of(stats(self.says[found.pod])) for uid, found in instances.items() if found.pod in self.says}


class Scene:
    def __init__(self, node_label: str = "node") -> None:
        self.answers, self.registry = Answers(), CollectorRegistry()
        self.clock, self.cluster = self.answers.clock, ObservedCluster(self.answers.clock)
        self.listed = asyncio.Event()
        watch = SimpleNamespace(observed=self.cluster, ready=self.listed.wait)
        self.beats = Heartbeats(self.clock)
        self.controller = PlatformsController(
            cast("ClusterWatch", watch), cast("InstanceReader", self.answers), PlatformMetrics(self.registry), self.clock,
            interval_s=5.0, node_label=node_label, beats=self.beats,
        )  # fmt: skip

    def shown(self) -> list[str]:
        text = generate_latest(self.registry).decode()
        return [line for line in text.splitlines() if line.startswith("tiphys_runtime_")]


async def test_what_is_shown_is_as_old_as_the_second_before_the_round_however_long_that_took() -> None:
    scene = Scene()
    for name in ("a", "b"):
        scene.cluster.put_pod(knative_pod(name))
    scene.answers.says, scene.answers.takes_s = {"a": "idle", "b": "busy"}, 3.0
    assert scene.shown() == []
    await scene.controller.round()
    scene.clock.advance(0.5)
    assert scene.shown() == [
        'tiphys_runtime_idle_instances{function="shop/resize",node="n0"} 1.0',
        'tiphys_runtime_idle_age_seconds{node="n0"} 4.5',
    ]
    scene.clock.advance(60.0)
    assert scene.shown()[1] == 'tiphys_runtime_idle_age_seconds{node="n0"} 64.5', "it grows though no round comes"


async def test_a_pod_that_is_gone_takes_its_instance_with_it_at_the_next_round() -> None:
    scene = Scene(node_label="kubernetes_node")
    scene.cluster.put_pod(knative_pod("a"))
    scene.answers.says = {"a": "ended"}
    await scene.controller.round()
    assert scene.shown()[0] == 'tiphys_runtime_idle_instances{function="shop/resize",kubernetes_node="n0"} 1.0'
    scene.cluster.drop_pod("uid-a")
    await scene.controller.round()
    assert scene.shown()[0] == 'tiphys_runtime_idle_instances{function="shop/resize",kubernetes_node="n0"} 0.0'


async def test_nobody_is_asked_before_all_pods_are_listed_and_the_loop_says_that_it_works() -> None:
    scene = Scene()
    scene.cluster.put_pod(knative_pod("a"))
    scene.answers.says = {"a": "idle"}
    running = asyncio.create_task(scene.controller.run())
    try:
        for _ in range(5):
            await asyncio.sleep(0)
        assert scene.shown() == []
        assert "platforms" in scene.beats.ages_s()
        scene.clock.advance(30.0)
        scene.listed.set()
        async with asyncio.timeout(10):
            await scene.answers.asked.wait()
        await asyncio.sleep(0)
        assert len(scene.shown()) == 2
        assert scene.beats.ages_s()["platforms"] == 0
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert "platforms" not in scene.beats.ages_s()
