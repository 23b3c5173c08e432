"""The objects of the made-up API server of `tiphys bench scale`: stored as bytes, with a version each and a bounded history."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from tiphys_testbed.bench.scale_objects import Fleet, Made, uid_of

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
_HISTORY = 20_000
"""Events of one resource that a watch may go on from."""
_BREATH = 200
_VERSION_MARK = b'"metadata":{'


class Entry(NamedTuple):
    """A stored object; `body` has its resourceVersion."""

    namespace: str
    name: str
    version: int
    body: bytes
    fields: Mapping[str, str]


class Event(NamedTuple):
    """A change: what was there before and what is there now."""

    version: int
    before: Entry | None
    now: Entry | None
    last: Entry
    """The object as an event shows it; of one that is gone, its last state with a new version."""


@dataclass
class Resource:
    """All objects of one resource, and what has happened to them lately."""

    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=_HISTORY))
    forgotten: int = 0
    """The version up to which events are no longer known."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, event: Event) -> None:
        """Something has changed: watches wake up."""
        if len(self.events) == self.events.maxlen:
            self.forgotten = self.events[0].version
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """All waiting watches are woken to look for new events."""
        self.changed.set()
        self.changed = asyncio.Event()


class Store:
    """All resources by path, under one version as an API server has it."""

    def __init__(self) -> None:
        self.version = 100
        self.resources: dict[str, Resource] = {}
        self.fleet = Fleet(0, 0, 0, 0)
        self._uids = 0

    async def fill(self, fleet: Fleet) -> None:
        """Make the cluster: nodes, running pods and the pods of finished Jobs."""
        self.fleet = fleet
        makes: tuple[tuple[str, int, Callable[[int], Made]], ...] = (
            (NODES, fleet.nodes, fleet.node),
            (PODS, fleet.pods, fleet.pod),
            (PODS, fleet.jobs, fleet.job_pod),
        )
        for path, count, make in makes:
            for index in range(count):
                self.put(path, make(index), quietly=True)
                if index % _BREATH == 0:
                    await asyncio.sleep(0)

    def resource(self, path: str) -> Resource:
        """The resource at a path, which begins to exist."""
        return self.resources.setdefault(path, Resource())

    def put(self, path: str, made: Made, *, quietly: bool = False) -> Entry:
        """Add or replace an object; `quietly` leaves no event, as if it had always been there."""
        resource = self.resource(path)
        self.version += 1
        before = resource.entries.get((made.namespace, made.name))
        entry = Entry(made.namespace, made.name, self.version, _stamped(made.body, self.version), made.fields)
        resource.entries[made.namespace, made.name] = entry
        if quietly:
            resource.forgotten = self.version
        else:
            resource.tell(Event(self.version, before, entry, entry))
        return entry

    def put_object(self, path: str, obj: dict[str, Any]) -> Entry:
        """The same for an object as JSON; it gets a uid, a generation that counts changes of its spec, and a time."""
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        before = self.resource(path).entries.get((namespace, name))
        former = orjson.loads(before.body) if before is not None else {}
        self._uids += before is None
        known = former.get("metadata") or {}
        metadata["uid"] = known.get("uid") or metadata.get("uid") or uid_of(path, namespace, name, self._uids)
        metadata["creationTimestamp"] = known.get("creationTimestamp") or "2026-01-01T00:00:00Z"
        same = before is not None and former.get("spec") == obj.get("spec")
        metadata["generation"] = known.get("generation", 1) + (0 if same or before is None else 1)
        metadata.pop("resourceVersion", None)
        ordered = {"apiVersion": obj.get("apiVersion"), "kind": obj.get("kind"), "metadata": metadata} | obj
        fields = {
            "metadata.name": name,
            "metadata.namespace": namespace,
            "spec.nodeName": str((obj.get("spec") or {}).get("nodeName") or ""),
            "status.phase": str((obj.get("status") or {}).get("phase") or "Pending"),
        }
        return self.put(path, Made(namespace, name, orjson.dumps(ordered), fields))

    def delete(self, path: str, namespace: str, name: str, *, quietly: bool = False) -> Entry | None:
        """Remove an object, `quietly` without an event; what it was last."""
        resource = self.resource(path)
        before = resource.entries.pop((namespace, name), None)
        if before is not None and not quietly:
            self.version += 1
            last = before._replace(version=self.version, body=_stamped(before.body, self.version))
            resource.tell(Event(self.version, before, None, last))
        return before

    def expire(self) -> None:
        """All events are forgotten, so that watches must list again."""
        for resource in self.resources.values():
            resource.events.clear()
            self.version += 1
            resource.forgotten = self.version
            resource.wake()


def _stamped(body: bytes, version: int) -> bytes:
    """The object with this resourceVersion; ours stands first in its metadata."""
    head, mark, tail = body.partition(_VERSION_MARK)
    tail = re.sub(rb'^"resourceVersion":"\d+",', b"", tail)
    return b"".join((head, mark, b'"resourceVersion":"%d",' % version, tail))
