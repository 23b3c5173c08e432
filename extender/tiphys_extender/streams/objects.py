"""Sinks of watches: InferenceSites, ModelVariants and StreamPolicies of one namespace become what the stream binder reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Obeyed
from tiphys_extender.streams.metrics import POLICIES, SITES, VARIANTS
from tiphys_models.api.catalogue import SiteSeen, VariantSeen, compile_catalogue, site_seen, variant_seen
from tiphys_models.api.stream_policy import StreamPolicySpec, StreamPolicyStatus
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.kinds import INFERENCE_SITES, MODEL_VARIANTS, STREAM_POLICIES
from tiphys_models.kube.objects import Kind, Objects, ObjectSeen

_log = logging.getLogger(__name__)

_PLACES: dict[str, Kind[Any, Any]] = {SITES: INFERENCE_SITES, VARIANTS: MODEL_VARIANTS, POLICIES: STREAM_POLICIES}
_KINDS = {place.kind: kind for kind, place in _PLACES.items()}


class StreamObjects:
    """The three kinds together. Changes that come at once, as a list does, are compiled once."""

    def __init__(self, binder: StreamBinder, clock: Clock, tripped: Callable[[str], None] = lambda kind: None) -> None:
        """`tripped` is called with the kind of what could not be compiled."""
        self._binder, self._clock, self._tripped = binder, clock, tripped
        told: dict[str, Any] = {"changed": lambda former, now: self._changed(), "listed": self._changed}
        self._sites: Objects[SiteSeen] = Objects(site_seen, **told)
        self._variants: Objects[VariantSeen] = Objects(variant_seen, **told)
        self._policies: Objects[ObjectSeen[StreamPolicySpec, StreamPolicyStatus]] = Objects(STREAM_POLICIES.read_valid, **told)
        self.sinks: dict[str, Objects[Any]] = {SITES: self._sites, VARIANTS: self._variants, POLICIES: self._policies}
        self._pending = False

    def watched(self) -> dict[str, tuple[str, Objects[Any]]]:
        """Where each kind is."""
        return {kind: (_PLACES[kind].path(self._binder.namespace), sink) for kind, sink in self.sinks.items()}

    def compile(self) -> None:
        """Tell the binder, once all three kinds are known: what has not been listed yet must not look infeasible."""
        self._pending = False
        if not all(sink.complete for sink in self.sinks.values()):
            return
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - the last catalogue serves on: what is bound must not fall with what is listed
            self._tripped(VARIANTS)
            _log.exception("offers cannot be compiled, the last ones stay", extra={"fields": {"error": type(error).__name__}})
        try:
            self._obey()
        except Exception as error:  # noqa: BLE001 - the policy obeyed so far goes on
            self._tripped(POLICIES)
            _log.exception("StreamPolicy cannot be obeyed, the last one stays", extra={"fields": {"error": type(error).__name__}})

    def _publish(self) -> None:
        site = self._binder.access_site
        self._binder.publish(compile_catalogue(site, self._sites.all(), self._variants.all(), self._clock.now_s()))

    def _obey(self) -> None:
        site = self._binder.access_site
        ours = [p for p in self._policies.all() if p.spec is not None and p.spec.access_site == site]
        first = min(ours, key=lambda p: (p.created, p.name), default=None)
        found = None if first is None or first.spec is None else Obeyed(first.name, first.generation, first.spec)
        self._binder.obey(found)

    def _changed(self) -> None:
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self.compile)


def put_file(objects: StreamObjects, path: Path) -> None:
    """Objects from a file as `kubectl get -o json` writes it, instead of watches; InvalidInput says what is wrong."""
    try:
        items = orjson.loads(path.read_bytes())["items"]
    except (OSError, orjson.JSONDecodeError, LookupError, TypeError) as error:
        raise InvalidInput(f"cannot read {path} as a JSON List of objects: {type(error).__name__}") from error
    uids: set[str] = set()
    for number, obj in enumerate(items):
        kind = _KINDS.get(str(obj.get("kind")))
        if kind is None:
            raise InvalidInput(f"{path}: item {number} is no {' or '.join(_KINDS)}")
        metadata = {"uid": f"{kind}/{number}", "namespace": "default"} | obj["metadata"]
        objects.sinks[kind].put(obj | {"metadata": metadata})
        uids.add(metadata["uid"])
    for sink in objects.sinks.values():
        sink.listed(uids)
