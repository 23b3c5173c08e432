"""An API server of our own for `tiphys bench scale`: a process that serves a large made-up cluster over HTTP.

It pages (`limit`, `continue`: one consistent list over all pages), watches by resourceVersion with bookmarks, answers 410 for what it has
forgotten, filters by fields and labels, and takes writes (POST, PUT, PATCH, DELETE, `/status`), so that either service runs against it
unchanged. Any group's resource exists as soon as something is put there; discovery names those of which something was put or asked.

    python -m tiphys_testbed.bench.scale_server --nodes 5000 --workloads 5000 --pods 50000 --jobs 100000

prints one line of JSON, {"url": ..., "pid": ...}, when it serves, and ends with its standard input. `Api` (bench.scale_api) starts it and
drives it by paths of its own:

    POST /-/pods     {"fleet": "pods" | "jobs", "first": 0, "count": 100, "phase": "Running" | "Succeeded" | ... | "Gone" | "Vanished"}
    POST /-/objects  {"path": "/apis/tiphys.io/v1alpha1/schedulingpolicies", "objects": [...]}: put or replaced, uid and version made
    POST /-/expire   {}: history is forgotten, open watches end with 410, so that every client lists again
    POST /-/stats    requests by verb and path, bytes sent, objects by path
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import orjson
from aiohttp import web

from tiphys_testbed.bench.scale_objects import Fleet
from tiphys_testbed.bench.scale_readings import answer
from tiphys_testbed.bench.scale_store import PODS, Entry, Event, Resource, Store

_LISTS = 64
"""Lists that are being paged through at once; the oldest is forgotten, and answers 410."""
_BOOKMARK_S = 20.0
_WRITE_BYTES = 1 << 16
_BREATH = 200
_NAMESPACED = re.compile(r"^(/api/v1|/apis/[^/]+/[^/]+)/namespaces/([^/]+)/(.+)$")
METADATA_ONLY = "as=PartialObjectMetadata"


Test = Callable[[Entry], bool]


class Server:
    """HTTP over a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()
        self.sent_bytes = 0
        self._lists: dict[str, tuple[str, list[Entry]]] = {}
        """Lists that are being paged through: their version and what is in them."""
        self._listed = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The handler of every request."""
        path, query = request.path, request.query
        if path.startswith("/-/"):
            return await self._control(request)
        if path == "/prometheus/api/v1/query":
            query_text = str((await request.post()).get("query", ""))
            return web.Response(body=answer(self._store.fleet, query_text), content_type="application/json")
        if (found := self._discovery(path)) is not None:
            return web.json_response(found)
        self.requests[f"{'WATCH' if query.get('watch') == 'true' else request.method} {_anonymous(path)}"] += 1
        resource, namespace, name, part = _parsed(path)
        if name or (request.method != "GET"):
            return await self._one(request, resource, namespace, name, part)
        test = _test(namespace, query)
        if query.get("watch") == "true":
            return await self._watch(request, self._store.resource(resource), test)
        return self._list(request, resource, test)

    def _list(self, request: web.Request, path: str, test: Test) -> web.Response:
        token, limit = request.query.get("continue", ""), int(request.query.get("limit", "0"))
        if token:
            key, _, start = base64.b64decode(token).decode().partition("/")
            if key not in self._lists:
                return _refused(410, "Expired", "the continue token is too old")
            (version, items), first = self._lists[key], int(start)
        else:
            items = [entry for entry in self._store.resource(path).entries.values() if test(entry)]
            version, first, self._listed = str(self._store.version), 0, self._listed + 1
            key = str(self._listed)
            if limit and len(items) > limit:
                self._lists[key] = version, items
                while len(self._lists) > _LISTS:
                    del self._lists[next(iter(self._lists))]
        end = first + limit if limit else len(items)
        metadata: dict[str, Any] = {"resourceVersion": version}
        if end < len(items):
            metadata |= {"continue": base64.b64encode(f"{key}/{end}".encode()).decode(), "remainingItemCount": len(items) - end}
        else:
            self._lists.pop(key, None)
        cut = METADATA_ONLY in request.headers.get("Accept", "")
        bodies = [_metadata_of(entry.body) if cut else entry.body for entry in items[first:end]]
        body = b'{"kind":"List","apiVersion":"v1","metadata":' + orjson.dumps(metadata) + b',"items":[' + b",".join(bodies) + b"]}"
        self.sent_bytes += len(body)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, resource: Resource, test: Test) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        sent, loop = int(request.query.get("resourceVersion") or self._store.version), asyncio.get_running_loop()
        end_s = loop.time() + float(request.query.get("timeoutSeconds", "300"))
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while (left_s := end_s - loop.time()) > 0:
                changed = resource.changed
                if sent < resource.forgotten:
                    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    await answer.write(orjson.dumps({"type": "ERROR", "object": gone}) + b"\n")
                    break
                news = [event for event in resource.events if event.version > sent]
                async for chunk in _chunks(news, test):
                    self.sent_bytes += len(chunk)
                    await answer.write(chunk)
                if news:
                    sent = news[-1].version
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), min(_BOOKMARK_S, left_s))
                except TimeoutError:
                    mark = {"kind": "Object", "metadata": {"resourceVersion": str(max(sent, resource.forgotten))}}
                    await answer.write(orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n")
        return answer

    async def _one(self, request: web.Request, path: str, namespace: str, name: str, part: str) -> web.Response:
        entries = self._store.resource(path).entries
        entry = entries.get((namespace, name))
        body = orjson.loads(raw) if (raw := await request.read()) else {}
        if path.startswith("/apis/authorization.k8s.io/"):
            return web.json_response({**body, "status": {"allowed": True, "resourceRules": [], "nonResourceRules": []}}, status=201)
        if request.method == "POST":
            body["metadata"].setdefault("name", f"{body['metadata'].get('generateName', 'made-')}{self._store.version}")
            if namespace:
                body["metadata"]["namespace"] = namespace
            return _sent(self._store.put_object(path, body), 201)
        if request.method == "DELETE":
            self._store.delete(path, namespace, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        if entry is None and not (request.method == "PUT" or "apply-patch" in request.headers.get("Content-Type", "")):
            return _refused(404, "NotFound", f"{name} not found")
        if entry is None or request.method != "GET":
            former = orjson.loads(entry.body) if entry is not None else {"metadata": {"name": name}}
            asked = (body.get("metadata") or {}).get("resourceVersion")
            if asked and asked != (former.get("metadata") or {}).get("resourceVersion"):
                return _refused(409, "Conflict", "the object has been modified")
            made = _merged(former, body) if request.method == "PATCH" else body
            if part == "status":
                made = {**former, "status": made.get("status")}
            if namespace:
                made["metadata"]["namespace"] = namespace
            entry = self._store.put_object(path, made)
        return _sent(entry, 200)

    async def _control(self, request: web.Request) -> web.Response:
        body = orjson.loads(raw) if (raw := await request.read()) else {}
        match request.path:
            case "/-/pods":
                make = self._store.fleet.job_pod if body["fleet"] == "jobs" else self._store.fleet.pod
                for index in range(body["first"], body["first"] + body["count"]):
                    if body["phase"] in ("Gone", "Vanished"):
                        made = make(index)
                        self._store.delete(PODS, made.namespace, made.name, quietly=body["phase"] == "Vanished")
                    else:
                        self._store.put(PODS, make(index, body["phase"]))
                    if index % _BREATH == 0:
                        await asyncio.sleep(0)
            case "/-/objects":
                for obj in body["objects"]:
                    self._store.put_object(body["path"], obj)
            case "/-/expire":
                self._expire()
        counts = {path: len(resource.entries) for path, resource in self._store.resources.items()}
        return web.json_response(
            {"version": self._store.version, "objects": counts, "requests": dict(self.requests), "sent_bytes": self.sent_bytes}
        )

    def _expire(self) -> None:
        self._lists.clear()
        self._store.expire()

    def _discovery(self, path: str) -> Any:
        """What there is, for clients that ask before they watch."""
        if path == "/version":
            return {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        groups = sorted({p.removeprefix("/apis/").rsplit("/", 1)[0] for p in self._store.resources if p.startswith("/apis/")})
        if path == "/apis":
            named = [{"groupVersion": g, "version": g.partition("/")[2]} for g in groups]
            return {
                "kind": "APIGroupList",
                "groups": [{"name": n["groupVersion"].partition("/")[0], "versions": [n], "preferredVersion": n} for n in named],
            }
        if path == "/api/v1" or path.removeprefix("/apis/") in groups:
            here = [p.rpartition("/")[2] for p in self._store.resources if p.rpartition("/")[0] == path]
            verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
            plain = [
                {"name": n, "singularName": "", "namespaced": n != "nodes", "kind": self._kind(f"{path}/{n}"), "verbs": verbs} for n in here
            ]
            return {"kind": "APIResourceList", "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"), "resources": plain}
        return None

    def _kind(self, path: str) -> str:
        first = next(iter(self._store.resources[path].entries.values()), None)
        return str(orjson.loads(first.body).get("kind", "")) if first is not None else path.rpartition("/")[2].capitalize()


async def _chunks(events: Iterable[Event], test: Test) -> AsyncIterator[bytes]:
    """Events as lines, as a watch with this selection shows them, some 64 KiB at a time."""
    lines: list[bytes] = []
    size = 0
    for event in events:
        before, now = event.before is not None and test(event.before), event.now is not None and test(event.now)
        if not (before or now):
            continue
        kind = b"DELETED" if not now else b"MODIFIED" if before else b"ADDED"
        lines.append(b'{"type":"' + kind + b'","object":' + event.last.body + b"}\n")
        size += len(lines[-1])
        if size > _WRITE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _metadata_of(body: bytes) -> bytes:
    return orjson.dumps({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": orjson.loads(body)["metadata"]})


def _parsed(path: str) -> tuple[str, str, str, str]:
    """(resource, namespace, name, part) of a path."""
    if (match := _NAMESPACED.match(path)) is not None:
        base, namespace, rest = match.groups()
        plural, _, tail = rest.partition("/")
    else:
        split = 3 if path.startswith("/api/") else 4
        pieces = path.split("/")
        base, namespace, plural, tail = "/".join(pieces[:split]), "", pieces[split], "/".join(pieces[split + 1 :])
    name, _, part = tail.partition("/")
    return f"{base}/{plural}", namespace, name, part


def _anonymous(path: str) -> str:
    resource, _, name, part = _parsed(path) if path.count("/") > 2 else (path, "", "", "")
    return resource + ("/{name}" if name else "") + (f"/{part}" if part else "")


def _test(namespace: str, query: Mapping[str, str]) -> Test:
    """What a request selects: namespace, fields, and labels by equality."""
    fields = [_clause(text) for text in query.get("fieldSelector", "").split(",") if text]
    labels = [_clause(text) for text in query.get("labelSelector", "").split(",") if text]

    def test(entry: Entry) -> bool:
        if namespace and entry.namespace != namespace:
            return False
        if any((entry.fields.get(key, "") == value) is differs for key, value, differs in fields):
            return False
        if not labels:
            return True
        having = orjson.loads(entry.body)["metadata"].get("labels") or {}
        return not any((having.get(key, "") == value) is differs for key, value, differs in labels)

    return test


def _clause(text: str) -> tuple[str, str, bool]:
    """(key, value, whether it must differ)."""
    key, differs, value = text.partition("!=")
    if differs:
        return key, value, True
    key, _, value = text.partition("=")
    return key, value.lstrip("="), False


def _merged(former: Any, patch: Any) -> Any:
    """The object after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict) or not isinstance(former, dict):
        return patch
    merged = {key: value for key, value in former.items() if patch.get(key, value) is not None}
    return merged | {key: _merged(former.get(key), value) for key, value in patch.items() if value is not None}


def _refused(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}, status=code)


def _sent(entry: Entry, status: int) -> web.Response:
    return web.Response(body=entry.body, status=status, content_type="application/json")


async def serve(fleet: Fleet) -> None:
    """The server runs until its standard input ends."""
    store = Store()
    await store.fill(fleet)
    for path in ("/apis/coordination.k8s.io/v1/leases", "/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/events"):
        store.resource(path)
    app = web.Application(client_max_size=256 << 20)
    app.router.add_route("*", "/{rest:.*}", Server(store).handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(orjson.dumps({"url": f"http://{host}:{port}", "pid": os.getpid()}).decode() + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def main() -> None:
    """The entry point of the server's process."""
    parser = argparse.ArgumentParser(description="a large made-up cluster behind an API server of our own")
    for name in ("nodes", "workloads", "pods", "jobs"):
        parser.add_argument(f"--{name}", type=int, default=0)
    asked = parser.parse_args()
    asyncio.run(serve(Fleet(asked.nodes, asked.workloads, asked.pods, asked.jobs)))


if __name__ == "__main__":
    main()
