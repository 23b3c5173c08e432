"""What tests of watches share: nodes, a sink that keeps their names, and servers in any mood."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from aiohttp import web

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.paging import Paging

NODES = "/api/v1/nodes"


class Kept:
    """A sink that keeps names."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def put(self, obj: dict[str, Any]) -> None:
        self.names[obj["metadata"]["uid"]] = obj["metadata"]["name"]

    def drop(self, obj: dict[str, Any]) -> None:
        self.names.pop(obj["metadata"]["uid"], None)

    def listed(self, uids: set[str]) -> None:
        self.names = {uid: name for uid, name in self.names.items() if uid in uids}


def node(index: int, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": f"n{index}", "uid": f"u{index}", "resourceVersion": str(version)}}


class Stormy(Paging):
    """What a reflector asks of a client, from a server with 1,200 objects and a mood. Time is the loop's."""

    def __init__(self) -> None:
        self.version, self.objects = 10, {index: node(index) for index in range(1200)}
        self.mood = "calm"
        self.lists_s: list[float] = []
        self.pages_s: list[float] = []
        self.watches_s: list[float] = []
        self.second_page = asyncio.Event()
        self._events: list[dict[str, Any]] = []

    @property
    def requests_s(self) -> list[float]:
        return sorted(self.pages_s + self.watches_s)

    @property
    def names(self) -> dict[str, str]:
        return {obj["metadata"]["uid"]: obj["metadata"]["name"] for obj in self.objects.values()}

    def change(self, index: int) -> None:
        self.version += 1
        obj = node(index, self.version)
        gone = self.objects.pop(index, None) is not None
        if not gone:
            self.objects[index] = obj
        self._events.append({"type": "DELETED" if gone else "ADDED", "object": obj})

    async def page(self, path: str, params: Mapping[str, str] | None = None, token: str = "", *, accept: str = "") -> dict[str, Any]:
        now_s = asyncio.get_running_loop().time()
        self.pages_s.append(now_s)
        if not token:
            self.lists_s.append(now_s)
        else:
            self.second_page.set()
        await self._refuse()
        if token and self.mood == "compacts-pages":
            raise ApiError(410, "Expired", "the continue token is too old")
        items = list(self.objects.values())
        start = int(token or 0)
        metadata = {"resourceVersion": str(self.version)} | ({"continue": str(start + 500)} if start + 500 < len(items) else {})
        return {"metadata": metadata, "items": items[start : start + 500]}

    async def watch(self, path: str, resource_version: str, **_: Any) -> AsyncGenerator[dict[str, Any], None]:
        self.watches_s.append(asyncio.get_running_loop().time())
        await self._refuse()
        if self.mood.startswith("compacts"):
            raise ApiError(410, "Expired", "too old resource version")
        if self.mood.startswith("one-event"):
            yield {"type": "BOOKMARK", "object": node(0, int(resource_version))}
        if self.mood == "one-event-then-gone":
            yield {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
        if self.mood.endswith(("at-once", "then-ends")):
            return
        sent = int(resource_version)
        while self.mood == "calm":
            for event in self._events:
                if (version := int(event["object"]["metadata"]["resourceVersion"])) > sent:
                    sent = version
                    yield event
            yield {"type": "BOOKMARK", "object": node(0, sent)}
            await asyncio.sleep(5)
        raise Unavailable("connection reset")

    async def _refuse(self) -> None:
        if self.mood == "throttles":
            raise ApiError(429, "TooManyRequests", "later", retry_after_s=30.0)
        if self.mood == "fails":
            raise ApiError(500, "InternalError", "etcd")
        if self.mood == "slow":
            await asyncio.sleep(30)
        if self.mood == "silent":
            await asyncio.sleep(60)
            raise Unavailable("no answer")


@contextlib.asynccontextmanager
async def answering(handle: Any, *, request_timeout_s: float = 1.0) -> AsyncGenerator[KubeClient, None]:
    """A client of a server with one handler."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        access = ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
        async with KubeClient(access, request_timeout_s=request_timeout_s) as client:
            yield client
    finally:
        await runner.cleanup()
