"""What one object trips over ends at that object: it is counted, logged once for each of its versions, and left to whoever shows it."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter

from tiphys_models.clients.leases import LeaseLost
from tiphys_models.clients.reflector import Sink
from tiphys_models.domain.errors import Unavailable
from tiphys_models.domain.oddities import OddityBook, name_of

log = logging.getLogger(__name__)

KINDS = (
    "Pod", "Node", "EndpointSlice", "SchedulingPolicy", "LearnedModel", "ScalingPolicy", "InferenceSite", "ModelVariant", "StreamPolicy",
    "DecisionLog", "StreamSummary", "ModelArtifact", "Permission", "Metrics",
)  # fmt: skip
Found = TypeVar("Found")
_REMEMBERED = 4096
_TEXT_MAX = 300


@dataclass(slots=True)
class Trip:
    """What became of a step on one object."""

    error: Exception | None = None

    @property
    def message(self) -> str:
        """What it tripped over, for people; empty if it did not."""
        return said(self.error) if self.error is not None else ""


@contextlib.contextmanager
def caught() -> Iterator[Trip]:
    """Whatever a step raises is kept, except what is no object's doing: a lost Lease, or somebody who does not answer."""
    trip = Trip()
    try:
        yield trip
    except (LeaseLost, Unavailable):
        raise
    # Any exception at all: what a hostile object can raise cannot be listed, and one that is not foreseen must not end a loop that
    # serves everybody else.
    except Exception as error:  # noqa: BLE001
        trip.error = error


def attempted(step: Callable[[], Found]) -> tuple[Found | None, Trip]:
    """What a step returns, or None and what it raised."""
    found: Found | None = None
    with caught() as trip:
        found = step()
    return found, trip


def said(error: Exception) -> str:
    """The error in one line: its type, its words, and where it came from."""
    where, trace = "", error.__traceback__
    while trace is not None:
        where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:_TEXT_MAX]}{where}"


class ObjectGuard:
    """One for a process: the counter, and what was said of which version."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = Counter(
            "tiphys_operator_object_errors", "Steps on one object that it made fail; all others go on.", ["kind"], registry=registry
        )
        self._odd = Counter(
            "tiphys_operator_odd_objects", "Objects that were taken although something about them is absurd.", ["kind"], registry=registry
        )
        for kind in KINDS:
            self._errors.labels(kind)
        self._oddities: dict[str, OddityBook] = {}
        self._said: OrderedDict[tuple[str, str], str] = OrderedDict()

    @contextlib.contextmanager
    def over(self, kind: str, name: str, version: str) -> Iterator[Trip]:
        """A step on one object; `name` is namespace/name."""
        with caught() as trip:
            yield trip
        if trip.error is not None:
            self.tripped(kind, name, version, trip.message)

    def over_object(self, kind: str, obj: Mapping[str, Any]) -> contextlib.AbstractContextManager[Trip]:
        """The same for an object as the API server sends it."""
        return self.over(kind, *named(obj))

    def look(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Say, once, what is odd about an object that was taken all the same."""
        if words := self._oddities.setdefault(kind, OddityBook()).news(obj):
            self._odd.labels(kind).inc()
            log.warning("object is odd", extra={"fields": {"kind": kind, "object": name_of(obj), "oddities": ", ".join(words)}})

    def tripped(self, kind: str, name: str, version: str, message: str) -> None:
        """Count it, and say it unless it was said of this version."""
        self._errors.labels(kind).inc()
        if self._said.get((kind, name)) == version:
            return
        self._said[kind, name] = version
        self._said.move_to_end((kind, name))
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        log.warning("object left out", extra={"fields": {"kind": kind, "object": name, "error": message}})


def named(obj: Mapping[str, Any]) -> tuple[str, str]:
    """The object's namespace/name and resourceVersion, as far as it tells."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, Mapping):
        return "/", ""
    namespace, name = (str(metadata.get(part) or "")[:253] for part in ("namespace", "name"))
    return f"{namespace}/{name}", str(metadata.get("resourceVersion") or "")[:64]


class GuardedSink:
    """A sink into which no object can put what ends its watch."""

    def __init__(self, kind: str, sink: Sink, guard: ObjectGuard) -> None:
        self._kind, self._sink, self._guard = kind, sink, guard

    def put(self, obj: dict[str, Any]) -> None:
        """An object was added or changed."""
        with self._guard.over_object(self._kind, obj):
            self._sink.put(obj)
        self._guard.look(self._kind, obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """An object was deleted."""
        with self._guard.over_object(self._kind, obj):
            self._sink.drop(obj)

    def listed(self, uids: set[str]) -> None:
        """A whole list has been put."""
        self._sink.listed(uids)
