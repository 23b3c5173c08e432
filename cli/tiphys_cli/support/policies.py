"""`tiphys policies`: the names that a SchedulingPolicy, the benchmarks and the documentation use."""

from __future__ import annotations

from typing import Any

from tiphys_models.policies.registry import entries


def rows() -> list[dict[str, Any]]:
    """Name, kind, whether learned, and the first line of what each says of itself."""
    return [{"name": str(entry.name), "kind": "placement", "learned": entry.learned, "summary": entry.summary} for entry in entries()]
