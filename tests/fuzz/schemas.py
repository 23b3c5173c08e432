"""Arbitrary values within a structural schema, and slightly beyond it: what may stand in our own kinds and their statuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.fuzz.values import NUMBERS, WORDS, Draw, Json

_BEYOND: tuple[Json, ...] = (None, "", "text", 0, -1, 2**63 - 1, 1e308, 0.5, True, [], {}, [None], {"a": None}, [[]], "9" * 5000)


def within(draw: Draw, schema: Mapping[str, Any]) -> Json:
    """A value of the schema; with the stream's rate something else, in any part of it."""
    if draw.rate and draw.random.random() < draw.rate / 4:
        return draw.random.choice(_BEYOND)
    if "enum" in schema:
        return draw.random.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return _object(draw, schema)
        case "array":
            return _array(draw, schema)
        case "string":
            return _text(draw, schema)
        case "integer":
            return _integer(draw, schema)
        case "number":
            return _number(draw, schema)
        case "boolean":
            return draw.random.random() < 0.5
    return None


def _object(draw: Draw, schema: Mapping[str, Any]) -> Json:
    if isinstance(values := schema.get("additionalProperties"), dict):
        return {draw.random.choice(WORDS[:8]): within(draw, values) for _ in range(draw.random.randrange(3))}
    required = schema.get("required", ())
    return {
        key: within(draw, child)
        for key, child in schema.get("properties", {}).items()
        if (not draw.hostile() if key in required else draw.random.random() < 0.6)
    }


def _array(draw: Draw, schema: Mapping[str, Any]) -> Json:
    least, most = schema.get("minItems", 0), schema.get("maxItems", 8)
    # a list as long as it may be is rare: it costs a thousand times as much as the rest
    count = (
        min(most, 64) if draw.rate and draw.random.random() < draw.rate / 20 else draw.random.randrange(least, max(least, min(most, 3)) + 1)
    )
    return [within(draw, schema["items"]) for _ in range(count)]


def _text(draw: Draw, schema: Mapping[str, Any]) -> Json:
    if schema.get("format") == "date-time":
        return draw.time()
    return draw.random.choice(_words(schema.get("pattern", ""), schema.get("minLength", 0), schema.get("maxLength", 1000)))


@cache
def _words(pattern: str, least: int, most: int) -> tuple[str, ...]:
    found = tuple(word for word in WORDS if least <= len(word) <= most and re.search(pattern, word))
    return found or ("a" * max(1, least),)


def _integer(draw: Draw, schema: Mapping[str, Any]) -> Json:
    least, most = schema.get("minimum", -(2**63)), schema.get("maximum", 2**63 - 1)
    if draw.hostile():
        return draw.random.choice((least, most, least - 1, most + 1, 5.0, draw.random.randrange(int(least), int(most) + 1)))
    return int(min(most, max(least, draw.random.randrange(0, 20))))


def _number(draw: Draw, schema: Mapping[str, Any]) -> Json:
    least, most = schema.get("minimum", -1.7e308), schema.get("maximum", 1.7e308)
    if draw.hostile():
        return draw.random.choice((least, most, draw.random.choice(NUMBERS), 5e-324, -0.0))
    return min(most, max(least, round(draw.random.random() * 100, 3)))


def bruised(draw: Draw, value: Json, *, types: bool) -> Json:
    """The value with parts of it missing or null, and with `types` of another type altogether."""
    if draw.rate and draw.random.random() < draw.rate / 10:
        return draw.random.choice(_BEYOND) if types else None
    if isinstance(value, dict):
        return {
            key: bruised(draw, child, types=types) for key, child in value.items() if not draw.rate or draw.random.random() > draw.rate / 10
        }
    if isinstance(value, list) and len(value) < 100:
        return [bruised(draw, child, types=types) for child in value]
    return value
