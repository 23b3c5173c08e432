"""What is odd about an object that is taken all the same: an absurd quantity was clamped, a time is of another age, a field has no owner.

Nothing is decided here. Whoever keeps objects says of each odd one, once, what it is: an object that could hurt should have a name.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.facts import PRICE_ANNOTATION
from tiphys_models.base.quantity import MOST_BYTES, MOST_MILLI, quantity, timestamp_s

ABSURD_QUANTITY, ABSURD_TIME, ABSURD_NUMBER = "absurd-quantity", "absurd-time", "absurd-number"
ABSURD_PRICE, HUGE_ANNOTATIONS, MANY_OWNERS, NO_MANAGER, MANY_IMAGES, STRANGE_SHAPE = (
    "absurd-price",
    "huge-annotations",
    "many-owners",
    "no-manager",
    "many-images",
    "strange-shape",
)

_MOST_ANNOTATION_CHARACTERS = 65_536
_MOST_OWNERS = 16
_MOST_IMAGE_NAMES = 1_000
_EARLIEST_S, _LATEST_S = 631_152_000.0, 7_258_118_400.0  # 1990, 2200
_MOST_NUMBER = 2.0**53
_MOST_DEPTH = 8
_OURS = "tiphys.io/"


def oddities(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """The fixed words for what is odd about an object as the API server sends it; most objects are not odd."""
    try:
        return tuple(dict.fromkeys(_found(obj)))
    except (AttributeError, TypeError, KeyError, ValueError):
        return (STRANGE_SHAPE,)


def _found(obj: Mapping[str, Any]) -> Iterator[str]:
    metadata = obj.get("metadata") or {}
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield from _metadata(metadata)
    template = ((spec.get("template") or {}).get("spec") or {}) if isinstance(spec.get("template"), dict) else {}
    for pod_spec in (spec, template):
        for container in (*(pod_spec.get("containers") or ()), *(pod_spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            yield from _amounts(resources.get("requests"), resources.get("limits"))
    yield from _amounts(status.get("allocatable"), status.get("capacity"), spec.get("hard"), status.get("hard"), status.get("used"))
    for line in spec.get("limits") or ():
        yield from _amounts(line.get("max"), line.get("min"), line.get("default"), line.get("defaultRequest"))
    for condition in status.get("conditions") or ():
        yield from _times(condition.get("lastTransitionTime"))
    if sum(len(image.get("names") or ()) for image in status.get("images") or ()) > _MOST_IMAGE_NAMES:
        yield MANY_IMAGES
    if str(obj.get("apiVersion", "")).startswith(_OURS):
        yield from _values(spec, 0)
        yield from _values(status, 0)


def _metadata(metadata: Mapping[str, Any]) -> Iterator[str]:
    annotations = metadata.get("annotations") or {}
    if annotations:
        if sum(map(len, annotations.values())) > _MOST_ANNOTATION_CHARACTERS:
            yield HUGE_ANNOTATIONS
        price = annotations.get(PRICE_ANNOTATION)
        if price is not None and not _is_price(price):
            yield ABSURD_PRICE
    owners = metadata.get("ownerReferences") or ()
    if len(owners) > _MOST_OWNERS or sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield MANY_OWNERS
    if any(not entry.get("manager") for entry in metadata.get("managedFields") or ()):
        yield NO_MANAGER


def _amounts(*maps: Mapping[str, Any] | None) -> Iterator[str]:
    for amounts in maps:
        for name, amount in (amounts or {}).items():
            if _is_absurd(name.rpartition(".")[2], amount):
                yield ABSURD_QUANTITY


@lru_cache(maxsize=8192)  # clusters use few different requests, and every pod event asks
def _is_absurd(resource: str, amount: str | float) -> bool:
    try:
        value = quantity(amount)
    except InvalidInput:
        return True
    return not 0 <= value < (MOST_MILLI / 1000 if resource == "cpu" else MOST_BYTES)


def _times(*times: Any) -> Iterator[str]:
    for time in times:
        try:
            at_s = timestamp_s(time)
        except InvalidInput:
            yield ABSURD_TIME
            continue
        if at_s is not None and not _EARLIEST_S <= at_s <= _LATEST_S:
            yield ABSURD_TIME


def _values(value: Any, depth: int) -> Iterator[str]:
    """Numbers and times anywhere in one of our own objects."""
    if depth > _MOST_DEPTH:
        yield STRANGE_SHAPE
    elif isinstance(value, bool):
        return
    elif isinstance(value, int | float):
        if not abs(value) <= _MOST_NUMBER:
            yield ABSURD_NUMBER
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in _TIME_KEYS and isinstance(inner, str):
                yield from _times(inner)
            else:
                yield from _values(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner, depth + 1)


_TIME_KEYS = frozenset(("at", "measuredAt", "validUntil", "lastTransitionTime"))


def _is_price(text: Any) -> bool:
    try:
        price = float(text)
    except (TypeError, ValueError):
        return False
    return math.isfinite(price) and 0 <= price < 1e6


class OddityBook:
    """Which odd objects have been told of: each is told once, and again when it is odd in another way. The book is bounded."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._told: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def news(self, obj: Mapping[str, Any]) -> tuple[str, ...]:
        """What is odd about the object, if that has not been told; empty for ordinary objects and known oddities."""
        words = oddities(obj)
        if not words:
            return ()
        metadata = obj.get("metadata") or {}
        key = str(metadata.get("uid") or f"{metadata.get('namespace')}/{metadata.get('name')}")
        if self._told.get(key) == words:
            self._told.move_to_end(key)
            return ()
        self._told[key] = words
        self._told.move_to_end(key)
        while len(self._told) > self._most:
            self._told.popitem(last=False)
        return words

    def __len__(self) -> int:
        return len(self._told)


def name_of(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or the name alone of what has no namespace."""
    metadata = obj.get("metadata") or {}
    namespace, name = metadata.get("namespace") or "", metadata.get("name") or ""
    return f"{namespace}/{name}" if namespace else str(name)
