"""An API server of one page of code: lists in pages, watches by resource version, and faults on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from tiphys_models.kube.access import ApiAccess


class FakeApi:
    """Objects by path; every change is an event for the open watches."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.lists: Counter[str] = Counter()
        self.watches: Counter[str] = Counter()
        self.queries: list[dict[str, str]] = []
        self.faults: dict[str, list[Any]] = defaultdict(list)
        """By path: what the next requests get instead: an int status, 'rst', 'garbage', 'gone-event', 'error-event', 'stall'."""
        self._events: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        self._changed = asyncio.Event()

    def put(self, path: str, obj: dict[str, Any]) -> None:
        key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
        kind = "MODIFIED" if key in self.objects[path] else "ADDED"
        self._store(path, kind, key, obj)
        self.objects[path][key] = obj

    def delete(self, path: str, namespace: str, name: str) -> None:
        key = f"{namespace}/{name}"
        self._store(path, "DELETED", key, self.objects[path].pop(key))

    def forget(self, path: str, name: str) -> None:
        """Deleted while nobody was watching: no event."""
        self.objects[path].pop(f"/{name}")
        self.version += 1

    def _store(self, path: str, kind: str, key: str, obj: dict[str, Any]) -> None:
        self.version += 1
        obj["metadata"].setdefault("uid", f"uid-{key}")
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._events[path].append((self.version, {"type": kind, "object": json.loads(json.dumps(obj))}))
        self._changed.set()
        self._changed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        watching = request.query.get("watch") == "true"
        self.queries.append({"path": path, **request.query})
        if "/leases/" in path:
            return await self._lease(request)
        fault = self.faults[path].pop(0) if self.faults[path] else None
        if isinstance(fault, int):
            return web.json_response({"kind": "Status", "code": fault, "reason": f"Reason{fault}", "message": "no"}, status=fault)
        if fault == "rst":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault == "garbage":
            return web.Response(body=b"<html>a proxy's idea of an error</html>")
        if watching:
            self.watches[path] += 1
            return await self._watch(request, fault)
        return self._list(request)

    async def _lease(self, request: web.Request) -> web.StreamResponse:
        found, name = self.objects["leases"], request.path.rpartition("/")[2]
        if self.faults["leases"]:
            return web.json_response({"reason": "Down"}, status=self.faults["leases"][0])
        if request.method == "GET":
            return web.json_response(found[name]) if name in found else web.json_response({"reason": "NotFound"}, status=404)
        body = await request.json()
        before = found[name]["metadata"]["resourceVersion"] if name in found else None
        if body["metadata"].get("resourceVersion") != before:
            return web.json_response({"reason": "Conflict"}, status=409)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        found[name] = body
        return web.json_response(body)

    def _list(self, request: web.Request) -> web.Response:
        self.lists[request.path] += 1
        items = list(self.objects[request.path].values())
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start : start + limit]})

    async def _watch(self, request: web.Request, fault: Any) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)

        async def send(event: dict[str, Any]) -> None:
            await answer.write(json.dumps(event).encode() + b"\n")

        if fault in ("gone-event", "error-event"):
            code = 410 if fault == "gone-event" else 500
            await send({"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "Expired", "message": "too old"}})
            return answer
        sent = int(request.query["resourceVersion"])
        async with asyncio.timeout(30):
            while True:
                changed = self._changed
                for version, event in self._events[request.path]:
                    if version > sent:
                        await send(event)
                        sent = version
                if fault == "stall":
                    await asyncio.sleep(30)
                if request.path in self.faults and self.faults[request.path] and self.faults[request.path][0] == "cut":
                    self.faults[request.path].pop(0)
                    assert request.transport is not None
                    request.transport.abort()
                    return answer
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await changed.wait()
                    continue
                await send({"type": "BOOKMARK", "object": {"kind": "X", "metadata": {"resourceVersion": str(max(sent, self.version))}}})


@contextlib.asynccontextmanager
async def fake_api(api: FakeApi | None = None) -> AsyncGenerator[tuple[FakeApi, ApiAccess], None]:
    """It and how to reach it."""
    api = api or FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", api.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield api, ApiAccess(f"http://127.0.0.1:{port}", None)
    finally:
        await runner.cleanup()
