"""resourceVersions: opaque to most of us, but ordered within one history of an API server (Kubernetes says so since 1.35)."""

from __future__ import annotations


def version_number(version: str) -> int:
    """The version as a number, which grows with each write; 0 where it is none."""
    return int(version) if version.isdigit() else 0
