"""A workload on simulated nodes that behaves like a service: open-loop requests that queue where its pods' CPU does not suffice."""

from __future__ import annotations

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import ClusterError
from tiphys_models.base.quantity import cpu_milli
from tiphys_testbed.cluster.nodes import POOL_LABEL

CPU_MS = 2.0
"""CPU milliseconds of one request."""
LATENCY_S = 0.4
QUEUE_S = 2.0
"""A request that waits longer is given up."""
EDGES = ("0.1", "0.4", "1", "+Inf")
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


class CountedService:
    """Counters of one workload's pods on a loopback port, moved along by a thread."""

    def __init__(self, api: ApiClient, namespace: str, app: str, port: int = 0) -> None:
        self.rate = 0.0
        """Requests a second, of all pods together."""
        self.silent = False
        self._api, self._namespace, self._app = api, namespace, app
        self._counts: dict[tuple[str, str], float] = {}
        self._cpu_s: dict[str, float] = {}
        self._waiting: dict[str, float] = {}
        self._lock, self._stop = threading.Lock(), threading.Event()
        handler = type("Handler", (_Metrics,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True),
            threading.Thread(target=self._serve_requests, daemon=True),
        ]

    @property
    def url(self) -> str:
        """Where Prometheus finds the counters."""
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
            # without the API server nobody can tell which pods there are: the service stands still
            with contextlib.suppress(ClusterError):
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
        """All counters in Prometheus' text format."""
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
    service: CountedService

    def do_GET(self) -> None:
        body = self.service.render().encode()
        self.send_response(503 if self.service.silent else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Scrapes are no news."""
