"""Objects of one kind as a watch shows them: typed, parsed once, and one that cannot be read is set aside once, with the reason.

`Kind` reads a custom resource; `Objects` is a sink that keeps whatever a reader makes of an object and tells of what has changed. Both
services keep all their kinds in it; readers of pods and nodes are in `base.facts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from pydantic import BaseModel

from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.guard import attempted
from tiphys_models.kube.versions import version_number

Spec = TypeVar("Spec")
Status = TypeVar("Status", bound=BaseModel)
T = TypeVar("T")

GROUP_PREFIX = "tiphys.io/"
A_SLICE = 200
"""Objects that are let go of between two looks at what else is to be done."""
_LONGEST_REASON = 500
_LONGEST_ANNOTATION = 1024


@dataclass(frozen=True, slots=True)
class Kind(Generic[Spec, Status]):
    """A custom resource: what it is called and how its spec and status are read."""

    kind: str
    plural: str
    parse: Callable[[dict[str, Any]], Spec]
    """The spec out of the whole object; InvalidInput for one that the API server should not have admitted."""
    status: type[Status]
    group_version: str

    def path(self, namespace: str = "") -> str:
        """Where its objects are listed and watched: those of one namespace, or all."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"/apis/{self.group_version}{within}/{self.plural}"

    def read(self, obj: Mapping[str, Any]) -> ObjectSeen[Spec, Status]:
        """The object, whatever somebody wrote into spec and status: a spec that cannot be used is None, with the reason."""
        spec, invalid = spec_or_problem(obj, self.parse)
        return self._seen(obj, spec, invalid)

    def read_valid(self, obj: Mapping[str, Any]) -> ObjectSeen[Spec, Status]:
        """The object for whoever obeys it: whatever is wrong with the spec is raised, so that the last valid one stays."""
        return self._seen(obj, self.parse(dict(obj)), "")

    def _seen(self, obj: Mapping[str, Any], spec: Spec | None, invalid: str) -> ObjectSeen[Spec, Status]:
        metadata = obj["metadata"]
        return ObjectSeen(
            of=self,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
            uid=metadata["uid"],
            generation=generation_of(metadata),
            version=version_of(obj),
            created=metadata.get("creationTimestamp") or "",
            spec=spec,
            invalid=invalid,
            status=status_or_empty(obj, self.status),
            annotations=_own_annotations(metadata),
            deleting=bool(metadata.get("deletionTimestamp")),
        )


@dataclass(frozen=True, slots=True)
class ObjectSeen(Generic[Spec, Status]):
    """One object: plain data, whatever somebody wrote into it."""

    of: Kind[Spec, Status]
    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    """resourceVersion: the precondition of a write."""
    created: str
    """RFC 3339: sorts as time."""
    spec: Spec | None
    """None if it is invalid."""
    invalid: str
    """Why; empty if it is valid."""
    status: Status
    """What stands there; empty if it is unreadable, so that it is written anew."""
    annotations: Mapping[str, str]
    """Those of our own prefix."""
    deleting: bool = False

    @property
    def key(self) -> str:
        """Key of the object: namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def kind(self) -> str:
        """The kind's name, as Events say it."""
        return self.of.kind

    @property
    def plural(self) -> str:
        """The kind's name in paths."""
        return self.of.plural


class SetAside(NamedTuple):
    """An object that cannot be taken as it is now."""

    key: str
    version: str
    reason: str


class TooMany(InvalidInput):
    """There is no room for another object; it is looked at again when it changes or all are listed."""


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """How much is kept of one kind. The defaults are for custom resources."""

    objects: int = 20_000
    total_bytes: int = 64 * 2**20
    """Spec and status of all objects, as JSON. 0: bytes are not counted, as whatever is kept of an object has a fixed size."""


class _Kept(NamedTuple, Generic[T]):
    value: T
    key: tuple[str, str]
    version: str
    size_bytes: int


class Objects(Generic[T]):
    """A sink: what was made of each object of one kind, by uid and by name.

    `changed(former, now)` is told of each value that is new, other than before, or gone (`now` is None). An object that `read` cannot
    take is set aside until it changes; what was known of it before stays, unless `keep_last` is False. The error is raised again for the
    guard around the sink, once a version, or told to `refused` instead.
    """

    def __init__(
        self,
        read: Callable[[dict[str, Any]], T],
        changed: Callable[[T | None, T | None], None] = lambda former, now: None,
        *,
        listed: Callable[[], None] = lambda: None,
        refused: Callable[[SetAside], None] | None = None,
        keep_last: bool = True,
        limits: ObjectLimits | None = None,
    ) -> None:
        """`listed` is called after each whole list."""
        self._read, self._changed, self._listed, self._refused = read, changed, listed, refused
        self._keep_last, self._limits = keep_last, limits or ObjectLimits()
        self._kept: dict[str, _Kept[T]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._aside: dict[str, SetAside] = {}
        self._bytes = 0
        self._answered: set[str] | None = None
        """Objects that requests were answered with since a list began that has not ended; None: there is none."""
        self.complete = False
        """Whether all were listed, once."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[T]:
        return (kept.value for kept in self._kept.values())

    def all(self) -> tuple[T, ...]:
        """The values as they are now."""
        return tuple(self)

    def get(self, uid: str) -> T | None:
        """The value of one object."""
        kept = self._kept.get(uid)
        return None if kept is None else kept.value

    def named(self, namespace: str, name: str) -> T | None:
        """The value of the object of that name."""
        return self.get(self._uids.get((namespace, name), ""))

    @property
    def aside(self) -> Mapping[str, SetAside]:
        """Objects that cannot be taken, by uid."""
        return self._aside

    @property
    def total_bytes(self) -> int:
        """Spec and status of what is kept, as JSON."""
        return self._bytes

    def listing(self) -> None:
        """A whole list begins: what it shows is the truth, also where an API server that was restored from a backup counts anew."""
        self._answered = set()

    def put(self, obj: dict[str, Any]) -> None:
        """Added, changed, or seen again; what was seen already is no news, nor is in a watch what is older than that."""
        # of an object that was answered since the list began, the list may show what was there before
        uid = obj["metadata"]["uid"]
        self._put(obj, older=self._answered is not None and uid not in self._answered)

    def _put(self, obj: dict[str, Any], *, older: bool) -> None:
        """`older`: whether an older version is news, too."""
        metadata = obj["metadata"]
        uid, key, version = metadata["uid"], (metadata.get("namespace") or "", metadata["name"]), version_of(obj)
        if (other := self._uids.get(key, uid)) != uid:
            self.forget(other)  # deleted and made again: the former is nobody's
        former = self._kept.get(uid)
        if (
            version
            and former is not None
            and (former.version == version or (not older and version_number(former.version) > version_number(version)))
        ):
            return
        if version and (aside := self._aside.get(uid)) is not None and aside.version == version:
            return
        try:
            size_bytes = self._room_for(obj, former)
            value = self._read(obj)
        except Exception as error:
            self._set_aside(uid, key, version, error)
            if self._refused is None:
                raise
            self._refused(self._aside[uid])
            return
        self._aside.pop(uid, None)
        same = former is not None and former.value == value
        # whoever was told of a value may know it by identity: an equal one does not take its place
        self._kept[uid] = _Kept(former.value if former is not None and same else value, key, version, size_bytes)
        self._uids[key] = uid
        self._bytes += size_bytes - (former.size_bytes if former is not None else 0)
        if not same:
            self._changed(former.value if former is not None else None, value)

    def written(self, obj: dict[str, Any]) -> None:
        """What one of our own writes was answered with, unless the watch has told meanwhile that the object is gone."""
        if obj["metadata"]["uid"] in self._kept:
            self.answered(obj)

    def answered(self, obj: dict[str, Any]) -> None:
        """An object that a request of our own was answered with: it may be newer than a list that is being read."""
        self._put(obj, older=False)
        uid = obj["metadata"]["uid"]
        if self._answered is not None and uid in self._kept and self._kept[uid].version == version_of(obj):
            self._answered.add(uid)

    def drop(self, obj: dict[str, Any]) -> None:
        """Forget an object that was deleted."""
        self.forget(obj["metadata"]["uid"])

    def forget(self, uid: str) -> None:
        """Let go of what is kept of an object."""
        self._aside.pop(uid, None)
        gone = self._kept.pop(uid, None)
        if gone is None:
            return
        self._bytes -= gone.size_bytes
        if self._uids.get(gone.key) == uid:
            del self._uids[gone.key]
        self._changed(gone.value, None)

    def listed(self, uids: set[str]) -> None:
        """A whole list has been put; whatever is not in it is gone."""
        for _ in self.sweep(uids):
            pass

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """Forget whatever is not in the list, slice by slice, so that other work is not held up."""
        self._answered = None
        for number, uid in enumerate([uid for uid in (*self._kept, *self._aside) if uid not in uids], 1):
            self.forget(uid)
            if number % A_SLICE == 0:
                yield
        self.complete = True
        self._listed()

    def _room_for(self, obj: Mapping[str, Any], former: _Kept[T] | None) -> int:
        limits = self._limits
        if former is None and len(self._kept) >= limits.objects:
            raise TooMany(f"more than {limits.objects} objects of this kind are not kept")
        if not limits.total_bytes:
            return 0
        size_bytes = _size_bytes((obj.get("spec"), obj.get("status")))
        if self._bytes - (former.size_bytes if former is not None else 0) + size_bytes > limits.total_bytes:
            raise TooMany(f"objects of this kind have more than {limits.total_bytes} bytes together")
        return size_bytes

    def _set_aside(self, uid: str, key: tuple[str, str], version: str, error: Exception) -> None:
        if not self._keep_last:
            self.forget(uid)
        reason = str(error) if isinstance(error, InvalidInput) else type(error).__name__
        # a full store may have room by the time of the next list: the version is left out so that the object is tried again
        tried = "" if isinstance(error, TooMany) else version
        self._aside[uid] = SetAside("/".join(key), tried, reason[:_LONGEST_REASON])
        while len(self._aside) > self._limits.objects:
            del self._aside[next(iter(self._aside))]


def spec_or_problem(obj: Mapping[str, Any], parse: Callable[[dict[str, Any]], Spec]) -> tuple[Spec | None, str]:
    """The spec, or why it cannot be used: a CRD of another version may have let it through."""
    spec, trip = attempted(lambda: parse(dict(obj)))
    if trip.error is None:
        return spec, ""
    return None, str(trip.error) if isinstance(trip.error, InvalidInput) else trip.message


def status_or_empty(obj: Mapping[str, Any], model: type[Status]) -> Status:
    """The status; an empty one where it cannot be read, so that it is written anew."""
    status, _ = attempted(lambda: model.model_validate(obj.get("status") or {}))
    return status if status is not None else model()


def generation_of(metadata: Mapping[str, Any]) -> int:
    """The object's generation; 0 where it has none that can be one."""
    value = metadata.get("generation")
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0


def version_of(obj: Mapping[str, Any]) -> str:
    """The object's resourceVersion; empty where it has none."""
    version = obj["metadata"].get("resourceVersion")
    return version if isinstance(version, str) else ""


def _own_annotations(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    annotations = metadata.get("annotations") or {}
    return {name: str(value)[:_LONGEST_ANNOTATION] for name, value in annotations.items() if name.startswith(GROUP_PREFIX)}


def _size_bytes(value: Any) -> int:
    try:
        return len(orjson.dumps(value))
    except TypeError:  # numbers beyond 64 bits, halves of characters: odd, and whoever reads the object judges it
        return len(json.dumps(value, default=str))
