"""A selection loop on an API server of two lists, one ConfigMap and plans; tests break the server where they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.builders import policy_object
from tests.operator.cluster.test_live import NODE, pod
from tiphys_models.base.clock import SystemClock
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement.observation import PolicySeen, policy_seen
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.selection.checkpoint import Checkpoint
from tiphys_operator.selection.controller import SelectionController
from tiphys_operator.selection.prices import PriceTable
from tiphys_operator.served_models import ServedModels

UID = "uid-p"


class Kube:
    """An API server of two lists, one ConfigMap and plans."""

    def __init__(self, *, empty: bool = False) -> None:
        self.writes: list[str] = []
        self.data: dict[str, Any] | None = None if empty else {}
        self.version = 1
        self.plan: dict[str, Any] | None = None
        self.fail = ""
        self.asked = 0
        self.open = asyncio.Event()
        """Writes wait until it is set."""
        self.open.set()

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> Any:
        if self.fail == "read":
            raise ApiError(500, "InternalError", "on purpose")
        if self.data is None:
            raise ApiError(404, "NotFound", path)
        return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.data)}

    async def pages(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = "") -> AsyncGenerator[dict[str, Any], None]:
        waiting = pod("Pending")
        waiting["spec"] = {**waiting["spec"], "nodeName": "", "schedulerName": "tiphys"}
        if path.endswith("learnedmodels"):
            await asyncio.sleep(60)  # who publishes puts into the sink
        yield {"metadata": {"resourceVersion": "1"}, "items": [NODE if path.endswith("nodes") else waiting]}

    async def watch(self, *args: Any, **limits: Any) -> AsyncGenerator[dict[str, Any], None]:
        await asyncio.sleep(60)
        yield {}

    async def request(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, content_type: str = "", **rest: Any
    ) -> Any:
        if "placementplans" in path:
            return self._plan(method, body, dry=bool(params and "dryRun" in params))
        self.asked += 1
        await self.open.wait()
        if self.fail == "checkpoint":
            raise ApiError(500, "InternalError", "on purpose")
        if method == "PATCH" and self.data is None:
            raise ApiError(404, "NotFound", path)
        if method == "POST" and self.data is not None:
            raise ApiError(409, "AlreadyExists", path)
        wanted = body["metadata"].get("resourceVersion")
        assert wanted is not None or method == "POST", "a write without a precondition"
        if wanted not in (None, str(self.version)):
            raise ApiError(409, "Conflict", path)
        self.writes.append("checkpoint")
        self.version += 1
        self.data = {**(self.data or {}), **body["data"]}
        return {"metadata": {"resourceVersion": str(self.version)}}

    async def apply(self, path: str, body: Any, field_manager: str, **rest: Any) -> Any:
        assert body["metadata"].get("resourceVersion"), "a write without a precondition"
        return self._plan("PATCH", body, dry=False)

    def _plan(self, method: str, body: Any, *, dry: bool) -> Any:
        """Server-side apply and creation of the one plan."""
        there = self.plan["metadata"]["resourceVersion"] if self.plan is not None else ""
        wanted = body["metadata"].get("resourceVersion")
        if dry:
            return {**body, "metadata": {**body["metadata"], "resourceVersion": there}}
        if self.fail == "plan":
            raise ApiError(500, "InternalError", "on purpose")
        if method == "POST" and there:
            raise ApiError(409, "AlreadyExists", "plan")
        if wanted is not None and wanted != there:
            raise ApiError(409, "Conflict", "plan")
        self.writes.append("plan")
        self.plan = {**body, "metadata": {**body["metadata"], "resourceVersion": str(int(there or "100") + 1)}}
        return self.plan


class Unfenced:
    """A writer whose Lease never ends."""

    async def fenced(self, request: Awaitable[Any]) -> Any:
        return await request


def selecting(generation: int = 1, **select: Any) -> PolicySeen:
    obj = policy_object("p", "a", mode="Active", select={"by": "preview", "intervalSeconds": 2, **select})
    obj["metadata"] |= {"generation": generation, "resourceVersion": "1"}
    return policy_seen(obj)


def loop_on(
    kube: Kube, policy: PolicySeen, metrics: OperatorMetrics | None = None, models: ServedModels | None = None
) -> SelectionController:
    client, writer, clock = cast("KubeClient", kube), cast("Writer", Unfenced()), SystemClock()
    checkpoint = Checkpoint(client, writer, "tiphys-system", "tiphys-selection")
    made = SelectionController(
        client,
        writer,
        checkpoint,
        PriceTable(),
        metrics or OperatorMetrics(),
        clock,
        own_namespace="tiphys-system",
        scheduler_name="tiphys",
        models=models,
    )
    made.see([policy])
    return made


@asynccontextmanager
async def running(
    kube: Kube, policy: PolicySeen, news: Callable[[SelectionController], None] = lambda made: None, metrics: OperatorMetrics | None = None
) -> AsyncGenerator[SelectionController, None]:
    made = loop_on(kube, policy, metrics)
    made.on_news = lambda: news(made)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the loop under test has no event of ours
            await asyncio.sleep(0.01)
