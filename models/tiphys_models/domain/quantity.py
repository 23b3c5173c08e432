"""Kubernetes quantities and timestamps as plain numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache

from tiphys_models.domain.errors import InvalidInput

_SUFFIXES = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip


_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([numkMGTPE]|[KMGTPE]i)?")


def quantity(text: str | float) -> float:
    """A Kubernetes quantity in base units: cores for cpu, bytes for memory."""
    if not isinstance(text, str):
        return float(text)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text[:40]!r} is not a Kubernetes quantity such as 500m, 2, 128Mi or 1G")
    return float(match[1]) * _SUFFIXES[match[2] or ""]


@lru_cache(maxsize=4096)  # clusters use few different requests, and every pod event asks
def cpu_milli(text: str | float) -> int:
    """Milli-cores."""
    return round(quantity(text) * 1000)


@lru_cache(maxsize=4096)
def memory_bytes(text: str | float) -> int:
    """Bytes."""
    return round(quantity(text))


def timestamp_s(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time as the API server writes it; None stays None."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an RFC 3339 time") from None


def rfc3339(at_s: float) -> str:
    """A time as the API server takes it, whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
