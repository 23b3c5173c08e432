"""A small API server with the semantics the operator relies on, and with faults to order."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import KubeClient

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
POLICIES = "/apis/tiphys.io/v1alpha1/schedulingpolicies"

_VERBS = ["list", "watch", "patch"]
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {
        "resources": [
            {"name": "namespaces", "kind": "Namespace", "singularName": "namespace", "namespaced": False, "verbs": _VERBS},
            {"name": "events", "kind": "Event", "singularName": "event", "namespaced": True, "verbs": _VERBS},
        ]
    },
    "/apis": {
        "groups": [
            {
                "name": "tiphys.io",
                "versions": [{"version": "v1alpha1", "groupVersion": "tiphys.io/v1alpha1"}],
                "preferredVersion": {"version": "v1alpha1"},
            }
        ]
    },
    "/apis/tiphys.io/v1alpha1": {
        "resources": [
            {
                "name": "schedulingpolicies",
                "kind": "SchedulingPolicy",
                "singularName": "schedulingpolicy",
                "namespaced": True,
                "verbs": _VERBS,
            },
            {"name": "schedulingpolicies/status", "kind": "SchedulingPolicy", "singularName": "", "namespaced": True, "verbs": ["patch"]},
            {"name": "learnedmodels", "kind": "LearnedModel", "singularName": "learnedmodel", "namespaced": True, "verbs": _VERBS},
        ]
    },
}


def status(code: int, reason: str, message: str = "on purpose", **headers: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code, headers=headers)


class FakeApiServer:
    """Leases with optimistic concurrency, policies with status, pods by selector, events."""

    def __init__(self) -> None:
        self.version = 10
        self.leases: dict[str, dict[str, Any]] = {}
        self.policies: dict[tuple[str, str], dict[str, Any]] = {}
        self.models: dict[tuple[str, str], dict[str, Any]] = {}
        self.config_maps: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.denied: set[tuple[str, str]] = set()
        """(verb, resource) that access reviews deny."""
        self.writes: list[tuple[str, str]] = []
        """Method and path of what changed something."""
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault | None = None
        """Sees every request first; what it returns is the answer."""
        self.watch_log: list[tuple[str, dict[str, Any]]] = []
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._middleware])
        app.router.add_route("*", "/{tail:.*}", self._dispatch)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def access(self) -> ApiAccess:
        return ApiAccess(self.url, None)

    def client(self) -> KubeClient:
        return KubeClient(self.access, request_timeout_s=5.0)

    def add_policy(self, name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
        self.version += 1
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": uuid.uuid4().hex,
            "generation": 1,
            "resourceVersion": str(self.version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }
        obj = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": metadata, "spec": spec}
        self.policies[namespace, name] = obj
        self.watch_log.append(("ADDED", json.loads(json.dumps(obj))))
        return obj

    def add_model(self, name: str, namespace: str = "tiphys-system", **spec: Any) -> dict[str, Any]:
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": uuid.uuid4().hex, "generation": 1, "resourceVersion": str(self.version)}
        obj = {"apiVersion": "tiphys.io/v1alpha1", "kind": "LearnedModel", "metadata": metadata, "spec": spec}
        self.models[namespace, name] = obj
        self.watch_log.append(("ADDED", json.loads(json.dumps(obj))))
        return obj

    def add_config_map(self, obj: dict[str, Any]) -> None:
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        self.config_maps[metadata["namespace"], metadata["name"]] = {**obj, "metadata": metadata}

    def add_pod(self, name: str, namespace: str = "default", scheduler: str = "tiphys", phase: str = "Pending", **labels: str) -> None:
        self.version += 1
        version = str(self.version)
        metadata = {"name": name, "namespace": namespace, "uid": uuid.uuid4().hex, "labels": labels, "resourceVersion": version}
        self.pods.append({"metadata": metadata, "spec": {"schedulerName": scheduler}, "status": {"phase": phase}})

    def wrote(self, part: str) -> int:
        """How many writes had this in their path."""
        return sum(part in path for _, path in self.writes)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs))
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            return answer
        response: web.StreamResponse = await handler(request)
        return response

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        if request.path.endswith("selfsubjectaccessreviews"):
            return await self._review(request)
        if "leases" in parts:
            return await self._lease(request, parts)
        if "schedulingpolicies" in parts:
            return await self._custom(request, parts, self.policies)
        if "learnedmodels" in parts:
            return await self._custom(request, parts, self.models)
        if "configmaps" in parts:
            found = self.config_maps.get((parts[3], parts[5]))
            return status(404, "NotFound") if found is None else web.json_response(found)
        if request.path in ("/api/v1/pods", "/api/v1/nodes"):
            objects = self.pods if parts[-1] == "pods" else []
            return await self._watch_core(request, objects) if request.query.get("watch") else self._pods(request, objects)
        if "events" in parts:
            return await self._event(request, parts)
        return status(404, "NotFound", f"no {request.path}")

    async def _review(self, request: web.Request) -> web.Response:
        attributes = (await request.json())["spec"]["resourceAttributes"]
        target = "/".join(filter(None, (attributes["resource"], attributes.get("subresource"))))
        return web.json_response({"status": {"allowed": (attributes["verb"], target) not in self.denied}})

    async def _lease(self, request: web.Request, parts: list[str]) -> web.Response:
        name = parts[-1]
        if request.method == "GET":
            return web.json_response(self.leases[name]) if name in self.leases else status(404, "NotFound")
        assert request.method == "PUT", "created, too, where the right to do so can be limited to the name"
        body = await request.json()
        version = body["metadata"].get("resourceVersion")
        if name in self.leases and version is None:
            return status(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
        if version is not None and (name not in self.leases or version != self.leases[name]["metadata"]["resourceVersion"]):
            return status(409, "Conflict")
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.leases[name] = body
        self.writes.append((request.method, request.path))
        return web.json_response(body)

    async def _custom(self, request: web.Request, parts: list[str], objects: dict[tuple[str, str], dict[str, Any]]) -> web.StreamResponse:
        if request.method == "GET" and request.query.get("watch"):
            return await self._watch(request, parts[3])
        if request.method == "GET":
            body = {"metadata": {"resourceVersion": str(self.version)}, "items": list(objects.values())}
            return web.json_response(body)
        key = (parts[4], parts[6])
        if parts[-1] != "status" or request.method != "PATCH" or key not in objects:
            return status(404, "NotFound")
        stored, body = objects[key], await request.json()
        for name in ("uid", "resourceVersion"):
            if body["metadata"][name] != stored["metadata"][name]:
                return status(409, "Conflict")
        self.version += 1
        stored["status"] = body["status"]
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.writes.append((request.method, request.path))
        self.watch_log.append(("MODIFIED", json.loads(json.dumps(stored))))
        return web.json_response(stored)

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since, sent = int(request.query["resourceVersion"]), 0
        while True:
            for kind, obj in self.watch_log[sent:]:
                wanted = "learnedmodels" if obj["kind"] == "LearnedModel" else "schedulingpolicies"
                if wanted == plural and int(obj["metadata"]["resourceVersion"]) > since:
                    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")
            sent = len(self.watch_log)
            await asyncio.sleep(0.02)

    def _pods(self, request: web.Request, pods: list[dict[str, Any]]) -> web.Response:
        fields = request.query.get("fieldSelector", "")
        found = [pod for pod in pods if not ("status.phase!=" in fields and pod["status"]["phase"] in ("Succeeded", "Failed"))]
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": found})

    async def _watch_core(self, request: web.Request, objects: list[dict[str, Any]]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        while True:
            for obj in objects:
                if int(obj["metadata"]["resourceVersion"]) > since:
                    await response.write(json.dumps({"type": "ADDED", "object": obj}).encode() + b"\n")
            since = self.version
            await asyncio.sleep(0.02)

    async def _event(self, request: web.Request, parts: list[str]) -> web.Response:
        body = await request.json()
        self.writes.append((request.method, request.path))
        if request.method == "POST":
            self.events.append(body)
            return web.json_response(body, status=201)
        (event,) = [e for e in self.events if e["metadata"]["name"] == parts[-1]]
        event |= body
        return web.json_response(event)
