"""When windows come: at once for what is new, in the predecessor's rhythm for what is not, and pods in between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from tests.operator.scaling.harness import Kube, Prometheus, Unfenced, exactly
from tests.operator.scaling.small import pod_object
from tiphys_models.base.clock import ManualClock, SystemClock
from tiphys_models.base.quantity import rfc3339
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.leases import LeaseLost
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.scaling.agents import AgentShelf
from tiphys_operator.scaling.controller import ScalingController
from tiphys_operator.scaling.transition_log import TransitionLog


class Server(Kube):
    """With lists and watches."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(**spec)
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.no_crd = False
        self.lists_asked = list[str]()

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        self.lists_asked.append(path)
        if self.no_crd and path.endswith("/scalingpolicies"):
            raise ApiError(404, "NotFound", path)
        node = {"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": {"cpu": "64"}}}
        items = {"scalingpolicies": [self.policy], "pods": list(self.pods.values()), "nodes": [node]}.get(path.rpartition("/")[2], [])
        yield {"metadata": {"resourceVersion": "1"}, "items": json.loads(json.dumps(items))}

    async def watch(self, path: str, *args: Any, **limits: Any) -> AsyncGenerator[dict[str, Any], None]:
        while True:
            if not path.endswith("/pods"):
                await asyncio.sleep(60)
            yield await self.events.get()


class Fenced(Unfenced):
    """A writer whose Lease can end."""

    lost = False

    async def fenced(self, request: Any) -> Any:
        if self.lost:
            request.close()
            raise LeaseLost("over")
        return await request


class Asked(Prometheus):
    """Remembers selectors; what goes back for hours is another kind of question."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.asked = list[str]()

    async def ranges(self, promql: str, *_: Any) -> Any:
        if not promql.startswith("sum("):
            self.asked.append(promql)
        return await super().ranges(promql)


class Running:
    def __init__(self, server: Server) -> None:
        self.server, self.metrics = server, OperatorMetrics()
        client = cast("KubeClient", server)
        self.writer = Fenced(client, self.metrics)
        self.prometheus = Asked(cast("ManualClock", SystemClock()))
        prometheus = cast("PrometheusClient", self.prometheus)
        shelf = AgentShelf(client, "tiphys-system", None, SystemClock())
        self.loop = ScalingController(client, self.writer, self.metrics, SystemClock(), shelf, TransitionLog(), prometheus)
        self.task = asyncio.create_task(self.loop.run())

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(server: Server) -> AsyncIterator[Running]:
    made = Running(server)
    try:
        yield made
    finally:
        made.task.cancel()
        await asyncio.gather(made.task, return_exceptions=True)


async def test_a_new_policy_has_its_first_window_at_once() -> None:
    async with running(Server(**exactly(3, 200))) as made:
        await made.until(lambda: made.server.writes == ["status", "scale", "resize", "resize", "status"])
        shown = 'tiphys_operator_scaling_policies{mode="Active",ready="True"} 1.0'
        await made.until(lambda: shown in made.metrics.render().decode())
        assert 'tiphys_operator_scaling_replicas{size="applied"} 3.0' in made.metrics.render().decode()


async def test_a_new_leader_makes_no_second_decision_within_a_window() -> None:
    server = Server(**exactly(3, 200))
    decision = {"number": 4, "at": rfc3339(SystemClock().now_s()), "phase": "Done", "from": {"replicas": 2}, "applied": {"replicas": 2}}
    server.policy["status"] = {"observedGeneration": 1, "lastDecision": decision}
    async with running(server) as made:
        await made.until(lambda: any(path.endswith("/nodes") for path in server.lists_asked))
        await asyncio.sleep(0.5)
        assert server.writes == []


async def test_a_pod_that_reports_its_size_later_is_resized_without_waiting_for_a_window() -> None:
    server = Server(**exactly(2, 200))
    server.pods["web-1"] = pod_object("web-1", actual=None)
    async with running(server) as made:
        await made.until(lambda: server.writes == ["status", "resize", "status"] or server.writes.count("resize") == 1)
        server.pods["web-1"] = pod_object("web-1")
        await server.events.put({"type": "MODIFIED", "object": json.loads(json.dumps(server.pods["web-1"]))})
        await made.until(lambda: server.writes.count("resize") == 2)


async def test_without_the_crd_only_scaling_waits() -> None:
    server = Server()
    server.no_crd = True
    async with running(server) as made:
        await made.until(lambda: 'scaling_errors_total{reason="watch-failed"} 1.0' in made.metrics.render().decode())
        assert not made.task.done()
        assert not any(path.endswith("/pods") for path in server.lists_asked), "nobody needs pods yet"


async def test_a_lost_lease_ends_the_loop_before_anything_is_written() -> None:
    server = Server(**exactly(3, 200))
    async with running(server) as made:
        made.writer.lost = True
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(asyncio.shield(made.task), 5)
        assert server.writes == []


async def test_a_policy_that_may_be_raised_is_looked_at_between_its_windows() -> None:
    objective = {"latencyMilliseconds": 400, "metrics": {"inFlight": "requests_in_flight"}}
    async with running(Server(**exactly(2, 200), objective=objective, intervalSeconds=5)) as made:
        await made.until(lambda: any("_bucket" in query and "Inf" in query for query in made.prometheus.asked))
        assert made.server.writes.count("status") <= 2, "one window only"
