"""A window runner on an API server of one workload and a Prometheus of one load; a test can let it die at any write."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from typing import Any, cast

from tests.operator.scaling.small import NOW_S, deployment, pod_object, policy_object
from tiphys_models.base.clock import ManualClock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.events import EventWrite
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.agents import AgentShelf
from tiphys_operator.scaling.cluster import ScalingCluster
from tiphys_operator.scaling.hands import Hands
from tiphys_operator.scaling.intents import IntentKeys
from tiphys_operator.scaling.metrics import ScalingMetrics
from tiphys_operator.scaling.reach import Reach
from tiphys_operator.scaling.running import Running
from tiphys_operator.scaling.seen import scaling_seen
from tiphys_operator.scaling.sources import CPU_COUNTERS
from tiphys_operator.scaling.transition_log import TransitionLog
from tiphys_operator.scaling.window import WindowRunner


class Killed(BaseException):
    """What SIGKILL is to a process."""


class Kube:
    """An API server with one Deployment, its pods and one ScalingPolicy; it can die at any request."""

    def __init__(self, replicas: int = 2, **spec: Any) -> None:
        self.deployment = deployment(replicas)
        self.pods = {f"web-{n}": pod_object(f"web-{n}") for n in range(replicas)}
        self.policy = policy_object(**spec)
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.writes: list[str] = []
        self.refuse: dict[str, ApiError] = {}
        """By kind of write; `preflight` for dry runs."""
        self.die_at: tuple[int, str] | None = None
        """Number of the write, and whether before or after it."""
        self.conflicts = 0
        """So many scales meet a workload that has just changed."""
        self.missing = False
        self.config_maps: dict[str, dict[str, Any]] = {}

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        if "/configmaps/" in path:
            return self.config_maps[path.rpartition("/")[2]]
        if self.missing:
            raise ApiError(404, "NotFound", path)
        return json.loads(json.dumps(self.deployment))

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        if path in self.refuse:
            raise self.refuse[path]
        yield {"items": self.lists.get(path.rpartition("/")[2], [])}

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        assert path.endswith("/scalingpolicies/web/status")
        if body["metadata"]["resourceVersion"] != self.policy["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        self._writing("status")
        self.policy = {**self.policy, "status": json.loads(json.dumps(body["status"]))}
        self._next(self.policy)
        self._written()
        return json.loads(json.dumps(self.policy))

    async def request(self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **rest: Any) -> Any:
        assert method == "PATCH"
        kind = path.rpartition("/")[2]
        dry = "dryRun" in (params or {})
        if error := self.refuse.get("preflight" if dry else kind):
            raise error
        if dry:
            return {}
        obj = self.deployment if kind == "scale" else self.pods[path.split("/")[-2]]
        if kind == "scale" and self.conflicts:
            self.conflicts -= 1
            self._next(obj)
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        self._writing(kind)
        if kind == "scale":
            obj["spec"]["replicas"] = body["spec"]["replicas"]
            obj["metadata"]["managedFields"] = [{"manager": (params or {})["fieldManager"], "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
        else:
            wanted = body["spec"]["containers"][0]["resources"]
            obj["spec"]["containers"][0]["resources"] = wanted
            obj["status"]["containerStatuses"][0]["resources"] = wanted
        self._next(obj)
        self._written()
        return obj

    def _writing(self, kind: str) -> None:
        if self.die_at == (len(self.writes) + 1, "before"):
            raise Killed
        self.writes.append(kind)

    def _written(self) -> None:
        if self.die_at == (len(self.writes), "after"):
            raise Killed

    @staticmethod
    def _next(obj: dict[str, Any]) -> None:
        obj["metadata"]["resourceVersion"] = str(int(obj["metadata"]["resourceVersion"]) + 1)


class Unfenced(Writer):
    """A writer whose Lease never ends."""

    def __init__(self, client: KubeClient, metrics: OperatorMetrics) -> None:
        self._client, self._metrics = client, metrics
        self.events: list[EventWrite] = []

    async def fenced(self, request: Awaitable[Any]) -> Any:
        return await request

    async def write_event(self, event: EventWrite) -> None:
        self.events.append(event)


class Prometheus:
    """Twenty requests a second, all good; or none of it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.down, self.frozen_s = clock, False, 0.0

    async def ranges(self, promql: str, *_: Any) -> Any:
        if self.down:
            raise Unavailable("refused")
        end = self.frozen_s or self.clock.now_s() - 2
        times = [end - 5 * back for back in range(80, -1, -1)]
        edges = ("0.4", "+Inf") if "bucket" in promql else CPU_COUNTERS if "__name__" in promql else ("",)
        rate = 10.0 if "bucket" in promql else 0.02
        result = [
            {
                "metric": {"pod": f"web-{n}", "le": edge} | ({"__name__": edge} if edge in CPU_COUNTERS else {}),
                "values": [[t, str(rate * (t - times[0]))] for t in times],
            }
            for n in range(4)
            for edge in edges
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


class Life:
    """One operator process: everything in it is lost when it ends."""

    def __init__(
        self, kube: Kube, clock: ManualClock, prometheus: Prometheus, reach: Reach | None = None, keys: IntentKeys | None = None
    ) -> None:
        client, self.metrics = cast("KubeClient", kube), OperatorMetrics()
        self.kube, self.cluster = kube, ScalingCluster()
        self.writer = Unfenced(client, self.metrics)
        hands = Hands(client, self.writer, self.metrics, clock)
        source = cast("PrometheusClient", prometheus)
        self.shelf, self.log = AgentShelf(client, "tiphys-system", None, clock), TransitionLog()
        self.runner = WindowRunner(
            hands, self.writer, self.cluster, source, self.metrics.part(ScalingMetrics), clock, self.shelf, self.log, self.cluster.policy_written,
            reach or Reach("tiphys-system"), keys or IntentKeys(),
        )  # fmt: skip
        self.running = Running()

    async def window(self) -> None:
        self.look()
        await self.runner.run(scaling_seen(self.kube.policy), self.running)

    async def align(self) -> None:
        self.look()
        await self.runner.align(scaling_seen(self.kube.policy), self.running)

    def look(self) -> None:
        self.cluster.store.put(self.kube.policy)
        for obj in self.kube.pods.values():
            self.cluster.observed.put_pod(obj)
        self.cluster.observed.put_node({"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": {"cpu": "64"}}})


class World:
    def __init__(self, **spec: Any) -> None:
        self.clock = ManualClock(NOW_S)
        self.kube, self.prometheus = Kube(**spec), Prometheus(self.clock)
        self.keys = IntentKeys()
        """All lives have the same, as from one Secret."""

    def life(self) -> Life:
        return Life(self.kube, self.clock, self.prometheus, keys=self.keys)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.kube.policy["status"])

    @property
    def decision(self) -> dict[str, Any]:
        return dict(self.status["lastDecision"])

    def reason(self, kind: str) -> str:
        return next(str(c["reason"]) for c in self.status["conditions"] if c["type"] == kind)

    def sizes(self) -> list[str]:
        return [p["spec"]["containers"][0]["resources"]["limits"]["cpu"] for p in self.kube.pods.values()]


def exactly(replicas: int, cpu_m: int) -> dict[str, Any]:
    """Bounds that leave one size."""
    return {
        "horizontal": {"minReplicas": replicas, "maxReplicas": replicas},
        "vertical": {"minCpuMilli": cpu_m, "maxCpuMilli": cpu_m},
    }
