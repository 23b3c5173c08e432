"""Hashes that are equal in every process and every release (Python's own `hash` of a string is salted)."""

from __future__ import annotations

from hashlib import blake2b


def stable_hash(text: str) -> int:
    """64 bits of a string, for tie-breaking, canary shares and hash homes."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
