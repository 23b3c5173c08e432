"""The placement controller with an API server of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.operator.api_server import POLICIES, FakeApiServer, status
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.leases import Lease
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement.controller import PlacementController
from tiphys_operator.runtime.health import Health
from tiphys_operator.runtime.permissions import PermissionCheck


@dataclass
class Loop:
    server: FakeApiServer
    client: KubeClient
    lease: Lease
    metrics: OperatorMetrics
    permissions: PermissionCheck
    health: Health
    reconciler: PlacementController

    def sample(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"tiphys_operator_{name}", labels) or 0.0

    def status(self, name: str = "p") -> dict[str, Any]:
        found: dict[str, Any] = self.server.policies["default", name].get("status") or {}
        return found

    def reason(self, kind: str, name: str = "p") -> str:
        return next((str(c["reason"]) for c in self.status(name).get("conditions", ()) if c["type"] == kind), "")

    async def until(self, condition: Callable[[], object], deadline_s: float = 8.0) -> None:
        async with asyncio.timeout(deadline_s):
            while not condition():  # noqa: ASYNC110 - the fake server's state is plain data
                await asyncio.sleep(0.01)


def refuse(code: int, *, method: str = "GET", part: str = POLICIES, times: int = 10**6) -> Callable[[web.Request], Awaitable[Any]]:
    left = times

    async def fault(request: web.Request) -> web.StreamResponse | None:
        nonlocal left
        if request.method != method or part not in request.path or left <= 0:
            return None
        left -= 1
        return status(code, "OnPurpose")

    return fault
