"""List, then watch, for ever: a cache's view of one resource, repaired after every kind of interruption."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import Unavailable

_GONE = 410
_OBJECTS_A_BREATH = 50
"""So many objects of a page are put at once; requests that wait are let through in between."""


class Sink(Protocol):
    """Where objects go. Called on the event loop, so each call must be short."""

    def put(self, obj: dict[str, Any]) -> None:
        """An object was added or changed; the same one may come again."""
        ...

    def drop(self, obj: dict[str, Any]) -> None:
        """An object was deleted."""
        ...

    def listed(self, uids: set[str]) -> None:
        """A whole list has been put: whatever has another uid no longer exists."""
        ...


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Deadlines and pace of a watch."""

    server_timeout_s: int = 300
    stall_s: float = 75.0
    """The API server sends a bookmark about every minute: silence beyond that is a dead connection."""
    rest_s: float = 0.0
    """How long events may wait so that several are read at once."""
    backoff_start_s: float = 0.2
    backoff_max_s: float = 5.0


class Reflector:
    """Keeps a sink equal to one resource of the API server."""

    def __init__(
        self,
        client: KubeClient,
        path: str,
        sink: Sink,
        clock: Clock,
        *,
        params: Mapping[str, str] | None = None,
        limits: WatchLimits | None = None,
        on_error: Callable[[str, Unavailable], None] | None = None,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.last_activity_s = clock.monotonic_s()
        self._client, self._sink, self._clock = client, sink, clock
        self._params, self._limits = dict(params or {}), limits or WatchLimits()
        self._on_error = on_error
        self._version = ""

    async def run(self) -> None:
        """Until cancelled."""
        backoff_s = self._limits.backoff_start_s
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                backoff_s = self._limits.backoff_start_s
            except Unavailable as error:
                if isinstance(error, ApiError) and error.status == _GONE:
                    self._version = ""
                    continue
                if isinstance(error, ApiError):
                    self._version = ""  # 401, 403, 429, 5xx: after those only a fresh list is certain
                if self._on_error is not None:
                    self._on_error(self.path, error)
                # jitter: a restarted API server should not meet all its watchers in one instant
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311
                backoff_s = min(backoff_s * 2, self._limits.backoff_max_s)
            except Exception:
                self._version = ""  # whoever starts this again must not meet the same event: only a fresh list is certain
                raise

    async def _list(self) -> None:
        uids: set[str] = set()
        version = ""
        async with contextlib.aclosing(self._client.pages(self.path, self._params)) as pages:
            async for page in pages:
                for number, obj in enumerate(page.get("items") or (), 1):
                    if uid := _named(obj, "uid"):
                        uids.add(uid)
                    self._sink.put(obj)
                    if number % _OBJECTS_A_BREATH == 0:
                        await asyncio.sleep(0)
                version = page["metadata"]["resourceVersion"]
                self._alive()
                await asyncio.sleep(0)  # a page is milliseconds of parsing: let waiting requests through
        self._sink.listed(uids)
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        limits = self._limits
        events = self._client.watch(
            self.path,
            self._version,
            server_timeout_s=limits.server_timeout_s,
            stall_s=limits.stall_s,
            rest_s=limits.rest_s,
            params=self._params,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                self._take(event)
        self._alive()

    def _take(self, event: dict[str, Any]) -> None:
        obj = event.get("object") or {}
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self._sink.put(obj)
            case "DELETED":
                self._sink.drop(obj)
            case "BOOKMARK":
                pass
            case _:
                raise ApiError(int(obj.get("code") or 500), str(obj.get("reason", "")), str(obj.get("message", "")))
        self._version = _named(obj, "resourceVersion") or self._version
        self._alive()

    def _alive(self) -> None:
        self.last_activity_s = self._clock.monotonic_s()


def _named(obj: Any, what: str) -> str:
    """An object without metadata must not end the watch that carries it."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    return str(metadata.get(what) or "") if isinstance(metadata, dict) else ""
