"""List, then watch, for ever: a cache's view of one resource, repaired after every kind of interruption."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.backoff import Backoff
from tiphys_models.kube.client import ApiError
from tiphys_models.kube.versions import version_number

_GONE, _THROTTLED = 410, 429
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


class CountingSink(Sink, Protocol):
    """A sink that knows how much it holds."""

    def __len__(self) -> int:
        """Objects that it holds."""
        ...


@runtime_checkable
class Sweeping(Protocol):
    """A sink that lets go of what a list does not show in slices, between which requests are let through."""

    def sweep(self, uids: set[str]) -> Iterable[None]:
        """Forget what has another uid; one step a slice."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A sink that takes a list for the truth, and what a watch shows only where it is newer than what is known."""

    def listing(self) -> None:
        """A whole list begins; `listed`, or `sweep`, ends it. One that broke off begins anew."""
        ...


class ListSource(Protocol):
    """What is asked of an API server: a `KubeClient`, as far as it matters here."""

    def pages(self, path: str, params: Mapping[str, str] | None = None) -> AsyncGenerator[dict[str, Any], None]:
        """A list, page by page."""
        ...

    def watch(
        self,
        path: str,
        resource_version: str,
        *,
        server_timeout_s: int,
        stall_s: float,
        rest_s: float = 0.0,
        params: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Events after a version."""
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
    backoff_max_s: float = 30.0
    steady_s: float = 5.0
    """A watch that has lasted so long is a sound one: after it the pauses start small again. One that ends sooner is followed by one."""


class BadObject(Unavailable):
    """An object without the name, uid or version that every object has; it is left out."""


class Reflector:
    """Keeps a sink equal to one resource of the API server.

    Whatever the server does, two lists never follow each other without a pause, but for the one after the first "too old" of a sound watch.
    """

    def __init__(
        self,
        client: ListSource,
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
        self._backoff = Backoff(self._limits.backoff_start_s, self._limits.backoff_max_s)
        self._relist_at_once = True
        """Whether the next "too old" may be answered by a list without a pause."""
        self._silent = False
        """Whether a watch told nothing, and nobody ended it: its server may have been restored from a backup."""

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            try:
                if self._silent and self._version and await self._went_back():
                    self._version = ""
                self._silent = False
                if not self._version:
                    await self._list()
                if not await self._watch():
                    await asyncio.sleep(self._backoff.next_s())
            except Unavailable as error:
                gone = isinstance(error, ApiError) and error.status == _GONE
                if isinstance(error, ApiError) and error.status != _THROTTLED:
                    # 401, 403, 5xx: after those only a fresh list is certain. After 429 it is not needed, and the worst to ask for
                    self._version = ""
                if gone and self._relist_at_once:
                    self._relist_at_once = False
                    continue
                self._tell(error)
                await asyncio.sleep(self._backoff.next_s(error))
            except Exception:
                self._version = ""  # whoever starts this again must not meet the same event: only a fresh list is certain
                raise

    async def _list(self) -> None:
        uids: set[str] = set()
        version: Any = ""
        if isinstance(self._sink, Listing):
            self._sink.listing()
        async with contextlib.aclosing(self._client.pages(self.path, self._params)) as pages:
            async for page in pages:
                items = page["items"]
                items.reverse()
                while items:
                    for obj in _taken(items, _OBJECTS_A_BREATH):
                        if self._sound(obj):
                            uids.add(obj["metadata"]["uid"])
                            self._sink.put(obj)
                    await asyncio.sleep(0)
                version = page["metadata"].get("resourceVersion")
                self._alive()
                await asyncio.sleep(0)  # a page is milliseconds of parsing: let waiting requests through
        if not isinstance(version, str) or not version:
            raise Unavailable(f"GET {self.path}: the list says no version")
        await self._sweep(uids)
        self._version = version
        self.synced.set()

    async def _went_back(self) -> bool:
        """Whether the server counts lower than what is known: a backup was restored. A watch from there is silent until it has caught up.

        The first page tells.
        """
        async with contextlib.aclosing(self._client.pages(self.path, self._params)) as pages:
            async for page in pages:
                version = page["metadata"].get("resourceVersion")
                return isinstance(version, str) and version_number(version) < version_number(self._version)
        return False

    async def _sweep(self, uids: set[str]) -> None:
        if isinstance(self._sink, Sweeping):
            for _ in self._sink.sweep(uids):
                await asyncio.sleep(0)
        else:
            self._sink.listed(uids)

    async def _watch(self) -> bool:
        """One watch until it ends; returns whether it was sound: it told or ended properly, and lasted long enough."""
        limits = self._limits
        began_s, told, ended = self._clock.monotonic_s(), False, False
        events = self._client.watch(
            self.path,
            self._version,
            server_timeout_s=limits.server_timeout_s,
            stall_s=limits.stall_s,
            rest_s=limits.rest_s,
            params=self._params,
        )
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self._take(event)
                    told = True
            self._alive()
            ended = True
        except Unavailable as error:
            self._silent |= not told and not isinstance(error, ApiError)
            raise
        finally:
            sound = (told or ended) and self._clock.monotonic_s() - began_s >= limits.steady_s
            if sound:
                self._relist_at_once = True
                self._backoff.reset()
        return sound

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        obj: Any = event.get("object")
        if kind not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            status = obj if isinstance(obj, dict) else {}
            code = status.get("code")
            raise ApiError(code if isinstance(code, int) else 500, str(status.get("reason", "")), str(status.get("message", "")))
        self._alive()
        version = _version_of(obj)
        if version is None or not (kind == "BOOKMARK" or self._sound(obj)):
            return
        if kind == "DELETED":
            self._sink.drop(obj)
        elif kind != "BOOKMARK":
            self._sink.put(obj)
        self._version = version

    def _sound(self, obj: Any) -> bool:
        """Whether the object has what every object has; one that has not is left out and reported, and spoils nothing else."""
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if isinstance(metadata, dict) and isinstance(metadata.get("uid"), str) and isinstance(metadata.get("name"), str):
            return True
        self._tell(BadObject(f"{self.path}: an object without a name or a uid is left out"))
        return False

    def _tell(self, error: Unavailable) -> None:
        if self._on_error is not None:
            self._on_error(self.path, error)

    def _alive(self) -> None:
        self.last_activity_s = self._clock.monotonic_s()


def _taken(items: list[Any], most: int) -> Iterator[Any]:
    """The last items, which the list lets go of one by one: a page is an order of magnitude larger than what is kept of it."""
    while items and most:
        most -= 1
        yield items.pop()


def _version_of(obj: Any) -> str | None:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) and version else None
