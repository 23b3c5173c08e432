"""What `tiphys explain` says of the hints that a pod carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiphys_models.placement.hints import KEPT, Hint, standing


def hint_lines(pod: Mapping[str, Any] | None) -> list[str]:
    """Full sentences; none of a pod on which we wrote nothing."""
    annotations = ((pod or {}).get("metadata") or {}).get("annotations") or {}
    hints = standing({name: str(value) for name, value in annotations.items() if name in KEPT})
    lines = []
    if (seconds := hints.get(Hint.DO_NOT_DISRUPT)) is not None:
        lines.append(f"It is protected from eviction until it has run for {seconds}: nine in ten pods of its application took no longer.")
    if (cost := hints.get(Hint.DELETION_COST)) is not None:
        lines.append(f"Its deletion cost is {cost}: whoever scales down takes pods with a lower one first.")
    return lines
