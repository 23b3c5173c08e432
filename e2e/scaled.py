"""What tests ask about a scaled workload, and a proxy that kills its operator between two writes."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from tiphys_cli.kube.api import STRATEGIC_MERGE_PATCH, ApiClient
from tiphys_models.base.quantity import cpu_milli, rfc3339
from tiphys_models.kube.access import kubeconfig_access
from tiphys_testbed.plane.service import CountedService, deployment, policy

__all__ = ["GROUP", "CountedService", "Proxy", "Workload"]

GROUP = "/apis/tiphys.io/v1alpha1"


@dataclass
class Workload:
    """What tests ask about one Deployment and its policy."""

    api: ApiClient
    namespace: str
    name: str = "web"

    @property
    def path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}"

    @property
    def policy_path(self) -> str:
        return f"{GROUP}/namespaces/{self.namespace}/scalingpolicies/{self.name}"

    def create(self, replicas: int, pool: str, cpu_m: int = 100, annotations: dict[str, str] | None = None) -> None:
        made = deployment(self.name, replicas, pool, cpu_m, annotations)
        self.api.create(f"/apis/apps/v1/namespaces/{self.namespace}/deployments", made)

    def create_policy(self, mode: str, **spec: Any) -> None:
        self.api.create(f"{GROUP}/namespaces/{self.namespace}/scalingpolicies", policy(self.name, self.name, mode, **spec))

    def change_policy(self, **spec: Any) -> None:
        self.api.patch(self.policy_path, {"spec": spec})

    def replicas(self) -> int:
        return int(self.api.get(self.path)["spec"]["replicas"])

    def generation(self) -> int:
        return int(self.api.get(self.path)["metadata"]["generation"])

    def pods(self) -> dict[str, dict[str, Any]]:
        """By uid."""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"app={self.name}")
        return {p["metadata"]["uid"]: p for p in found if not p["metadata"].get("deletionTimestamp")}

    def limits(self) -> list[int]:
        """CPU limits that the kubelets report."""
        return sorted(_limit(pod) for pod in self.pods().values())

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(self.policy_path).get("status") or {})

    def decision(self) -> dict[str, Any]:
        return dict(self.status().get("lastDecision") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason."""
        for found in self.status().get("conditions") or ():
            if found["type"] == kind:
                return found["status"], found["reason"]
        return "", ""

    def set_pod_condition(self, pod: dict[str, Any], kind: str, status: str, reason: str) -> None:
        """As its kubelet would."""
        condition = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": rfc3339(time.time())}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": {"conditions": [condition]}}, STRATEGIC_MERGE_PATCH)


def _limit(pod: dict[str, Any]) -> int:
    status = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
    return cpu_milli(((status.get("resources") or {}).get("limits") or {}).get("cpu") or 0)


@dataclass
class Proxy:
    """Between an operator and the API server: it can kill the operator right before or right after one of its writes."""

    kubeconfig: Path
    directory: Path
    kill: Callable[[signal.Signals], None] = lambda _: None
    point: tuple[str, int, str] | None = None
    """What is written (status, scale, resize), the how manieth of them, before or after."""
    writes: list[str] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._access = kubeconfig_access(self.kubeconfig)
        connector = aiohttp.TCPConnector(ssl=self._access.ssl_context() or True, limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False) as session:
            self._session = session
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{tail:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            document = yaml.safe_load(self.kubeconfig.read_text())
            document["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
            self.through = self.directory / "through-proxy.kubeconfig"
            self.through.write_text(yaml.safe_dump(document))
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        what = _written(request)
        if what:
            self.writes.append(what)
        number = self.writes.count(what)
        if self.point == (what, number, "before"):
            self._end()
        headers = {key: value for key, value in request.headers.items() if key.lower() not in ("host", "content-length")}
        async with self._session.request(
            request.method, self._access.server + request.path_qs, data=await request.read() or None, headers=headers
        ) as answer:
            if self.point == (what, number, "after"):
                self._end()
            skipped = ("transfer-encoding", "content-length", "connection")
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in skipped}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _end(self) -> None:
        self.point = None
        self.kill(signal.SIGKILL)
        raise web.HTTPServiceUnavailable


def _written(request: web.Request) -> str:
    if request.method != "PATCH" or "dryRun" in request.query:
        return ""
    if "/scalingpolicies/" in request.path:
        return "status"
    return next((kind for kind in ("scale", "resize") if request.path.endswith(f"/{kind}")), "")
