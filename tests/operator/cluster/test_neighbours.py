"""What windows need to know of workloads, autoscalers and quotas: told by watches while they live, asked for otherwise."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.operator.scaling.harness import Unfenced
from tests.operator.scaling.small import deployment
from tiphys_models.base.clock import SystemClock
from tiphys_models.base.heartbeats import Heartbeats
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.cluster.neighbours import Neighbours
from tiphys_operator.cluster.observed import ObservedCluster
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.workload import Target, target_of


def hpa(name: str, version: str = "20", namespace: str = "default") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version, "managedFields": [{"manager": "x"}]}
    return {"metadata": metadata, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}, "status": {"currentReplicas": 3}}


class Server:
    """Lists and watches of any path, with events to order; it counts what it is asked."""

    def __init__(self) -> None:
        self.objects: dict[str, list[dict[str, Any]]] = {}
        self.events: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self.refused: set[str] = set()
        self.asked: list[str] = []

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        self.asked.append(path)
        name = path.rpartition("/")[2]
        for obj in self.objects.get("/apis/apps/v1/deployments", ()):
            if obj["metadata"]["name"] == name:
                return json.loads(json.dumps(obj))
        raise ApiError(404, "NotFound", path)

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        self.asked.append(path)
        if path in self.refused:
            raise ApiError(403, "Forbidden", path)
        if "/namespaces/" in path:
            yield {"metadata": {}, "items": []}
        yield {"metadata": {"resourceVersion": "15"}, "items": json.loads(json.dumps(self.objects.get(path, [])))}

    async def watch(self, path: str, *args: Any, **limits: Any) -> AsyncGenerator[dict[str, Any], None]:
        while True:
            yield await self.events.setdefault(path, asyncio.Queue()).get()

    async def tell(self, path: str, kind: str, obj: dict[str, Any]) -> None:
        await self.events.setdefault(path, asyncio.Queue()).put({"type": kind, "object": json.loads(json.dumps(obj))})


class Scene:
    def __init__(self, server: Server) -> None:
        self.server, self.metrics, self.observed = server, OperatorMetrics(), ObservedCluster()
        client, clock = cast("KubeClient", server), SystemClock()
        self.neighbours: Neighbours[Target] = Neighbours(client, clock, self.metrics, Heartbeats(clock), self.observed, target_of)
        self.hands = Hands(client, Unfenced(client, self.metrics), self.metrics, clock, self.neighbours)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 - what a watch has shown is plain data
                await asyncio.sleep(0.01)

    def asks(self, about: str) -> float:
        return self.metrics.registry.get_sample_value("tiphys_operator_scaling_asks_total", {"about": about}) or 0.0


DEPLOYMENTS, HPAS = "/apis/apps/v1/deployments", "/apis/autoscaling/v2/horizontalpodautoscalers"


@asynccontextmanager
async def scene(server: Server) -> AsyncIterator[Scene]:
    made = Scene(server)
    made.observed.want("default", "Deployment", "web")
    made.neighbours.start()
    try:
        await made.until(lambda: DEPLOYMENTS in server.asked and HPAS in server.asked)
        await asyncio.sleep(0.05)
        server.asked.clear()
        yield made
    finally:
        await made.neighbours.close()


async def test_a_window_asks_for_nothing_that_a_watch_tells() -> None:
    server = Server()
    server.objects = {DEPLOYMENTS: [deployment(3)], HPAS: [hpa("theirs"), hpa("else", namespace="else")]}
    async with scene(server) as made:
        found = await made.hands.target("default", "Deployment", "web")
        assert found is not None
        assert found.replicas == 3
        assert [h["metadata"]["name"] for h in (await made.hands.others("default")).hpas] == ["theirs"]
        assert await made.hands.quotas("default") == []
        assert server.asked == []
        await server.tell(HPAS, "DELETED", hpa("theirs", "30"))
        await server.tell(DEPLOYMENTS, "MODIFIED", deployment(5, metadata={"resourceVersion": "31"}))
        await made.until(lambda: not made.neighbours.others("HorizontalPodAutoscaler", "default"))
        changed = await made.hands.target("default", "Deployment", "web")
        assert changed is not None
        assert (changed.replicas, changed.version) == (5, "31")


async def test_without_the_right_to_watch_each_window_asks_and_counts_it() -> None:
    server = Server()
    server.objects = {DEPLOYMENTS: [deployment(3)]}
    server.refused = {DEPLOYMENTS, HPAS}
    async with scene(server) as made:
        for _ in range(2):
            assert await made.hands.target("default", "Deployment", "web") is not None
            await made.hands.others("default")
        assert (made.asks("target"), made.asks("others")) == (2, 2)


async def test_a_workload_that_is_wanted_late_is_asked_for_once_and_told_of_from_then_on() -> None:
    server = Server()
    server.objects = {DEPLOYMENTS: [deployment(3, metadata={"name": "late", "uid": "l"})]}
    async with scene(server) as made:
        assert made.neighbours.workload("default", "Deployment", "late") is None, "nobody wants it: it is not kept"
        made.observed.want("default", "Deployment", "late")
        for _ in range(3):
            found = await made.hands.target("default", "Deployment", "late")
            assert found is not None
            assert found.replicas == 3
        assert made.asks("target") == 1


async def test_a_workload_that_went_while_it_was_asked_for_is_not_taken_for_there() -> None:
    server = Server()
    async with scene(server) as made:
        drops = made.neighbours.drops("Deployment")
        await server.tell(DEPLOYMENTS, "DELETED", deployment(metadata={"resourceVersion": "40"}))
        await made.until(lambda: made.neighbours.drops("Deployment") > drops)
        made.neighbours.asked("Deployment", deployment(), drops)
        assert made.neighbours.workload("default", "Deployment", "web") is None


async def test_a_workload_that_cannot_be_read_is_asked_for_so_that_its_policy_says_why() -> None:
    server = Server()
    server.objects = {
        DEPLOYMENTS: [{"metadata": {"name": "web", "namespace": "default", "uid": "d", "resourceVersion": "10"}, "spec": None}]
    }
    async with scene(server) as made:
        with pytest.raises(TypeError):
            await made.hands.target("default", "Deployment", "web")
