"""Kubernetes quantities and timestamps as plain numbers: whatever the API server stores is read, clamped or refused, never fatal."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import lru_cache

from tiphys_models.base.errors import InvalidInput

MOST_MILLI = 2**40
"""A request or a node of more is taken for this much: a billion cores, and thousands of such pods still add up exactly in a float."""
MOST_BYTES = 2**50
"""One PiB, more than any node has; thousands of such requests still fit an int64."""

_SUFFIXES = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40), "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip

_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?([numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_MOST_DIGITS = 256
_MOST_EXPONENT = 400
"""The API server keeps `1e400`; an exponent of nine digits must not become a number of a billion."""
_MOST = Decimal("1e300")


def quantity(text: str | float) -> float:
    """A Kubernetes quantity in base units: cores for cpu, bytes for memory. Always finite: at most 1e300 either way."""
    return float(_exact(text))


@lru_cache(maxsize=4096)  # clusters use few different requests, and every pod event asks
def cpu_milli(text: str | float) -> int:
    """Milli-cores, 0 to MOST_MILLI."""
    return _whole(_exact(text) * 1000, MOST_MILLI)


@lru_cache(maxsize=4096)
def memory_bytes(text: str | float) -> int:
    """Bytes, 0 to MOST_BYTES."""
    return _whole(_exact(text), MOST_BYTES)


def _whole(value: Decimal, most: int) -> int:
    if value >= most:
        return most
    return max(0, int(value.to_integral_value(ROUND_HALF_EVEN)))


def _exact(text: str | float) -> Decimal:
    if isinstance(text, str):
        return _parsed(text)
    if isinstance(text, bool) or not isinstance(text, int | float):
        raise InvalidInput(f"{str(text)[:40]!r} is not a Kubernetes quantity such as 500m, 2, 128Mi or 1G")
    if not math.isfinite(text):
        raise InvalidInput(f"{text} is not a finite quantity")
    return _within(Decimal(text))


def _parsed(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text) if len(text) <= _MOST_DIGITS else None
    if match is None:
        raise InvalidInput(f"{text[:40]!r} is not a Kubernetes quantity such as 500m, 2, 128Mi or 1G")
    sign, digits, exponent, suffix = match.groups()
    shift = int(exponent or 0) if len(exponent or "") < _MOST_DIGITS // 4 else 0
    shift = max(-_MOST_EXPONENT, min(_MOST_EXPONENT, shift))
    return _within(Decimal(f"{sign}{digits}e{shift}") * _SUFFIXES[suffix or ""])


def _within(value: Decimal) -> Decimal:
    return max(-_MOST, min(_MOST, value))


def timestamp_s(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time as the API server writes it; None stays None."""
    if text is None or text == "":
        return None
    if not isinstance(text, str):
        raise InvalidInput(f"{str(text)[:40]!r} is not an RFC 3339 time")
    try:
        at = datetime.fromisoformat(text.upper())  # RFC 3339, and with it a CRD's date-time, allows small t and z
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an RFC 3339 time") from None
    # a time without a zone would be read in this machine's own, and fails near the year 1
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def rfc3339(at_s: float) -> str:
    """A time as the API server takes it, whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
