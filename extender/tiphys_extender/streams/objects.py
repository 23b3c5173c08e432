"""From InferenceSites, ModelVariants and StreamPolicies of one namespace to what the stream binder reads: sinks of their watches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import orjson

from tiphys_extender.streams.binder import StreamBinder
from tiphys_extender.streams.chooser import Obeyed
from tiphys_extender.streams.metrics import POLICIES, SITES, VARIANTS
from tiphys_models.api import inference_site, model_variant, stream_policy
from tiphys_models.api.scheduling_policy import GROUP, VERSION
from tiphys_models.api.stream_policy import StreamPolicySpec, parse_stream_policy
from tiphys_models.binding.catalogue import SiteSeen, VariantSeen, compile_catalogue, site_seen, variant_seen
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import InvalidInput

_log = logging.getLogger(__name__)

_PLURALS = {SITES: inference_site.PLURAL, VARIANTS: model_variant.PLURAL, POLICIES: stream_policy.PLURAL}
_KINDS = {inference_site.KIND: SITES, model_variant.KIND: VARIANTS, stream_policy.KIND: POLICIES}
_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """A StreamPolicy as its watch shows it."""

    name: str
    created: str
    generation: int
    spec: StreamPolicySpec


class ObjectSink(Generic[_Seen]):
    """All objects of one kind. One that cannot be read leaves what was there (and is counted by whoever feeds the sink)."""

    def __init__(self, read: Callable[[dict[str, Any]], _Seen], changed: Callable[[], None]) -> None:
        self._read, self._changed = read, changed
        self._by_uid: dict[str, _Seen] = {}
        self.complete = False
        """Whether all were listed, once."""

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        uid, seen = obj["metadata"]["uid"], self._read(obj)
        if self._by_uid.get(uid) != seen:
            self._by_uid[uid] = seen
            self._changed()

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        if self._by_uid.pop(obj["metadata"]["uid"], None) is not None:
            self._changed()

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        self._by_uid = {uid: seen for uid, seen in self._by_uid.items() if uid in uids}
        self.complete = True
        self._changed()

    def __len__(self) -> int:
        return len(self._by_uid)

    def all(self) -> Iterable[_Seen]:
        """As they are now."""
        return self._by_uid.values()


class StreamObjects:
    """The three kinds together. Changes that come at once, as a list does, are compiled once."""

    def __init__(self, binder: StreamBinder, clock: Clock, tripped: Callable[[str], None] = lambda kind: None) -> None:
        """`tripped` is told the kind of what could not be compiled."""
        self._binder, self._clock, self._tripped = binder, clock, tripped
        self._sites: ObjectSink[SiteSeen] = ObjectSink(site_seen, self._changed)
        self._variants: ObjectSink[VariantSeen] = ObjectSink(variant_seen, self._changed)
        self._policies: ObjectSink[PolicySeen] = ObjectSink(_policy_seen, self._changed)
        self.sinks: dict[str, ObjectSink[Any]] = {SITES: self._sites, VARIANTS: self._variants, POLICIES: self._policies}
        self._pending = False

    def watched(self) -> dict[str, tuple[str, ObjectSink[Any]]]:
        """Where each kind is."""
        base = f"/apis/{GROUP}/{VERSION}/namespaces/{self._binder.namespace}"
        return {kind: (f"{base}/{_PLURALS[kind]}", sink) for kind, sink in self.sinks.items()}

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
        ours = [p for p in self._policies.all() if p.spec.access_site == site]
        first = min(ours, key=lambda p: (p.created, p.name), default=None)
        self._binder.obey(Obeyed(first.name, first.generation, first.spec) if first is not None else None)

    def _changed(self) -> None:
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self.compile)


def _policy_seen(obj: dict[str, Any]) -> PolicySeen:
    metadata = obj["metadata"]
    spec = parse_stream_policy(obj)
    return PolicySeen(metadata["name"], metadata.get("creationTimestamp") or "", int(metadata.get("generation") or 0), spec)


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
