"""A workload on simulated nodes that behaves like a service: open-loop requests that queue where its pods' CPU does not suffice."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from tiphys_cli.cluster.api import STRATEGIC_MERGE_PATCH, ApiClient
from tiphys_cli.cluster.nodes import POOL_LABEL
from tiphys_models.clients.access import kubeconfig_access
from tiphys_models.domain.quantity import cpu_milli, rfc3339

CPU_MS = 2.0
"""CPU milliseconds of one request."""
LATENCY_S = 0.4
QUEUE_S = 2.0
"""Who waits longer gives up."""
EDGES = ("0.1", "0.4", "1", "+Inf")
GROUP = "/apis/tiphys.io/v1alpha1"
_TICK_S = 0.25


def deployment(name: str, replicas: int, pool: str, cpu_m: int = 100, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Pods whose request is half of their limit."""
    resources = {
        "requests": {"cpu": f"{cpu_m // 2}m", "memory": "64Mi"},
        "limits": {"cpu": f"{cpu_m}m", "memory": "128Mi"},
    }
    template = {
        "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {POOL_LABEL: pool},
            "containers": [{"name": "main", "image": "registry.example/s:1", "resources": resources}],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }


def policy(name: str, target: str, mode: str, **spec: Any) -> dict[str, Any]:
    """A ScalingPolicy over both dimensions with a window of 5 s."""
    wanted = {
        "targetRef": {"kind": "Deployment", "name": target},
        "mode": mode,
        "objective": {"latencyMilliseconds": 400, "metrics": {"inFlight": "http_requests_in_flight"}},
        "horizontal": {"minReplicas": 1, "maxReplicas": 4},
        "vertical": {"minCpuMilli": 50, "maxCpuMilli": 400},
        "intervalSeconds": 5,
    }
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": "ScalingPolicy", "metadata": {"name": name}, "spec": wanted | spec}


class Service:
    """Counters of one workload's pods on a loopback port, moved along by a thread."""

    def __init__(self, api: ApiClient, namespace: str, app: str) -> None:
        self.rate = 0.0
        """Requests a second, of all pods together."""
        self.silent = False
        self._api, self._namespace, self._app = api, namespace, app
        self._counts: dict[tuple[str, str], float] = {}
        self._cpu_s: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        handler = type("Handler", (_Metrics,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True),
            threading.Thread(target=self._serve_requests, daemon=True),
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def pods(self) -> dict[str, dict[str, Any]]:
        """Running pods by name."""
        found = self._api.items(f"/api/v1/namespaces/{self._namespace}/pods", labelSelector=f"app={self._app}")
        return {p["metadata"]["name"]: p for p in found if (p.get("status") or {}).get("phase") == "Running"}

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join(5)
        self._server.server_close()

    def _serve_requests(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(_TICK_S):
            now = time.monotonic()
            self._tick(now - before)
            before = now

    def _tick(self, seconds: float) -> None:
        pods = self.pods()
        with self._lock:
            for name, pod in pods.items():
                status = (pod["status"].get("containerStatuses") or [{}])[0]
                limit_m = cpu_milli(((status.get("resources") or {}).get("limits") or {}).get("cpu") or 0)
                per_s = limit_m / CPU_MS
                waiting = self._waiting.get(name, 0.0) + self.rate / len(pods) * seconds
                served = min(waiting, per_s * seconds)
                given_up = max(waiting - served - QUEUE_S * self.rate / len(pods), 0.0)
                quick = waiting - served <= LATENCY_S * per_s
                self._waiting[name] = waiting - served - given_up
                for edge in EDGES:
                    count = served + given_up if edge == "+Inf" else served if edge == "1" or quick else 0.0
                    self._counts[name, edge] = self._counts.get((name, edge), 0.0) + count
                self._cpu_s[name] = self._cpu_s.get(name, 0.0) + served * CPU_MS / 1000

    def render(self) -> str:
        with self._lock:
            lines = [
                f'http_request_duration_seconds_bucket{{namespace="{self._namespace}",pod="{pod}",le="{edge}"}} {value}'
                for (pod, edge), value in self._counts.items()
            ]
            labels = f'namespace="{self._namespace}",container="main"'
            lines += [f'http_requests_in_flight{{namespace="{self._namespace}",pod="{pod}"}} {n}' for pod, n in self._waiting.items()]
            lines += [f'container_cpu_usage_seconds_total{{{labels},pod="{pod}"}} {value}' for pod, value in self._cpu_s.items()]
        return "\n".join(lines) + "\n"


class _Metrics(BaseHTTPRequestHandler):
    service: Service

    def do_GET(self) -> None:
        body = self.service.render().encode()
        self.send_response(503 if self.service.silent else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are no news."""


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
