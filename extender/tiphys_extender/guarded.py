"""Sinks of watches behind a guard: one object can spoil only itself, whatever it makes a parser trip over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from tiphys_extender.metrics import Metrics
from tiphys_models.domain.oddities import OddityBook, name_of

_log = logging.getLogger(__name__)
_REMEMBERED = 1_000


class CountingSink(Protocol):
    """A sink that knows how much it holds."""

    def put(self, obj: dict[str, Any]) -> None: ...  # noqa: D102
    def drop(self, obj: dict[str, Any]) -> None: ...  # noqa: D102
    def listed(self, uids: set[str]) -> None: ...  # noqa: D102
    def __len__(self) -> int: ...


class Guarded:
    """One strange object must not stop a watch: it is counted, named once for each of its versions, and looked at again when it changes.

    What the sink keeps of it is the sink's business: a pod that cannot be read counts as nothing, everything else keeps its last good
    state.
    """

    def __init__(self, kind: str, sink: CountingSink, metrics: Metrics) -> None:
        self._kind, self._sink, self._metrics = kind, sink, metrics
        self._said: dict[str, str] = {}
        self._oddities = OddityBook()

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed. What is odd about an object that was taken all the same is said, once."""
        self._try(self._sink.put, obj)
        if words := self._oddities.news(obj):
            self._metrics.odd_objects.labels(self._kind).inc()
            _log.warning("object is odd", extra={"fields": {"kind": self._kind, "object": name_of(obj), "oddities": ", ".join(words)}})

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._try(self._sink.drop, obj)

    def listed(self, uids: set[str]) -> None:
        """A whole list has been put."""
        self._try(self._sink.listed, uids)

    def _try(self, step: Callable[[Any], None], what: Any) -> None:
        try:
            step(what)
        except Exception as error:  # noqa: BLE001 - what an object can make a parser trip over has no end; it must spoil only itself
            self._metrics.watch_errors[self._kind, "bad-object"].inc()
            self._say(what, error)

    def _say(self, what: Any, error: Exception) -> None:
        where, version = _name_of(what)
        if self._said.pop(where, None) == version:
            self._said[where] = version
            return
        self._said[where] = version
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]
        # the kind of the error only: its message may quote the object, and that may be a pod's environment
        _log.warning("object left out", extra={"fields": {"kind": self._kind, "object": where, "error": type(error).__name__}})


def _name_of(what: Any) -> tuple[str, str]:
    """(namespace/name, version) as far as the object has them."""
    metadata = what.get("metadata") if isinstance(what, dict) else None
    if not isinstance(metadata, dict):
        return ("(a whole list)" if isinstance(what, set) else "(without metadata)"), ""
    return f"{metadata.get('namespace') or ''}/{metadata.get('name') or ''}"[:600], str(metadata.get("resourceVersion") or "")
