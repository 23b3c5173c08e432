"""What one object trips over ends at that object: it is counted, logged once for each of its versions, and left to whoever shows it."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tiphys_models.base.errors import Unavailable
from tiphys_models.base.oddities import OddityBook, name_of
from tiphys_models.kube.leases import LeaseLost
from tiphys_models.kube.reflector import Listing, Sink, Sweeping

log = logging.getLogger(__name__)

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
    return f"{type(error).__name__}: {str(error)[:_TEXT_MAX]}{_where(error)}"


def said_without_words(error: Exception) -> str:
    """The error's type and place without its message: that may quote the object, and so a pod's environment."""
    return f"{type(error).__name__}{_where(error)}"


def _where(error: Exception) -> str:
    where, trace = "", error.__traceback__
    while trace is not None:
        where = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return where


class Troubles:
    """What objects made one process trip over: counted by kind, and said once for each version. What is remembered is bounded."""

    def __init__(
        self,
        count: Callable[[str], None],
        odd: Callable[[str], None],
        words_of: Callable[[Exception], str] = said,
        most: int = _REMEMBERED,
    ) -> None:
        """`count` and `odd` are told the kind of each object that made a step fail, or that was taken although it is absurd."""
        self._count, self._odd, self._words_of, self._most = count, odd, words_of, most
        self._oddities: dict[str, OddityBook] = {}
        self._said: OrderedDict[tuple[str, str], str] = OrderedDict()

    @contextlib.contextmanager
    def over(self, kind: str, name: str, version: str) -> Iterator[Trip]:
        """A step on one object; `name` is namespace/name."""
        with caught() as trip:
            yield trip
        if trip.error is not None:
            self.tripped(kind, name, version, self._words_of(trip.error))

    def over_object(self, kind: str, obj: Mapping[str, Any]) -> contextlib.AbstractContextManager[Trip]:
        """Like `over`, for an object as the API server sends it."""
        return self.over(kind, *named(obj))

    def look(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Say, once, what is odd about an object that was taken all the same."""
        if words := self._oddities.setdefault(kind, OddityBook()).news(obj):
            self._odd(kind)
            log.warning("object is odd", extra={"fields": {"kind": kind, "object": name_of(obj), "oddities": ", ".join(words)}})

    def tripped(self, kind: str, name: str, version: str, message: str) -> None:
        """Count the failure, and log it unless it was logged for this version of the object."""
        self._count(kind)
        if self._said.get((kind, name)) == version:
            self._said.move_to_end((kind, name))
            return
        self._said[kind, name] = version
        self._said.move_to_end((kind, name))
        if len(self._said) > self._most:
            self._said.popitem(last=False)
        log.warning("object left out", extra={"fields": {"kind": kind, "object": name, "error": message}})


def named(obj: Any) -> tuple[str, str]:
    """The object's namespace/name and resourceVersion, as far as it tells."""
    metadata = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(metadata, Mapping):
        return "/", ""
    namespace, name = (str(metadata.get(part) or "")[:253] for part in ("namespace", "name"))
    return f"{namespace}/{name}", str(metadata.get("resourceVersion") or "")[:64]


class GuardedSink:
    """A sink into which no object can put what ends its watch.

    What the sink keeps of such an object is the sink's business.
    """

    def __init__(self, kind: str, sink: Sink, troubles: Troubles) -> None:
        self._kind, self._sink, self._troubles = kind, sink, troubles

    def listing(self) -> None:
        """A whole list begins."""
        if isinstance(self._sink, Listing):
            self._sink.listing()

    def put(self, obj: dict[str, Any]) -> None:
        """An object was added or changed. What is odd about one that was taken all the same is said, once."""
        with self._troubles.over_object(self._kind, obj):
            self._sink.put(obj)
        self._troubles.look(self._kind, obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """An object was deleted."""
        with self._troubles.over_object(self._kind, obj):
            self._sink.drop(obj)

    def listed(self, uids: set[str]) -> None:
        """A whole list has been put: the sweep in one go."""
        for _ in self.sweep(uids):
            pass

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """A whole list has been put: the sink's own sweep, slice by slice."""
        with self._troubles.over(self._kind, "(a whole list)", ""):
            if isinstance(self._sink, Sweeping):
                yield from self._sink.sweep(uids)
            else:
                self._sink.listed(uids)
