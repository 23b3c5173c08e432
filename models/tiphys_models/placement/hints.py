"""Hints: what Tiphys writes on pods for those who evict and delete them, and how it is told from what users wrote. Pure.

Each hint is an annotation that others define and read. Beside them stands a mark that names what we wrote, value by value: an annotation
that the mark does not name, or names with another value, is somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tiphys_models.base.facts import DO_NOT_DISRUPT

MARK = "tiphys.io/hints"
"""The annotation that names the hints which we wrote on a pod."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


class Hint(StrEnum):
    """Hints by their names in the spec, in the mark and in metrics."""

    DELETION_COST = "deletionCost"
    DO_NOT_DISRUPT = "doNotDisrupt"


ANNOTATIONS: Mapping[Hint, str] = {Hint.DELETION_COST: DELETION_COST, Hint.DO_NOT_DISRUPT: DO_NOT_DISRUPT}
KEPT = frozenset({MARK, *ANNOTATIONS.values()})
"""Annotations of a pod that matter here."""
_LONGEST_MARK = 256


def marked(annotations: Mapping[str, str]) -> Mapping[Hint, str]:
    """What we wrote, as the mark says; nothing where the mark cannot be ours."""
    mark = annotations.get(MARK, "")
    if len(mark) > _LONGEST_MARK:
        return {}
    said = dict(part.partition("=")[::2] for part in mark.split(",") if "=" in part)
    return {hint: said[hint] for hint in Hint if hint in said}


def standing(annotations: Mapping[str, str]) -> Mapping[Hint, str]:
    """Hints that stand as we wrote them."""
    return {hint: value for hint, value in marked(annotations).items() if annotations.get(ANNOTATIONS[hint]) == value}


def changes(annotations: Mapping[str, str], wanted: Mapping[Hint, str]) -> dict[str, str | None]:
    """Annotations to write (None: to take off), so that the wanted hints stand; empty where they do.

    What a user wrote stays, and so does what a user made of ours: a value that was changed, or taken off, is not written again.
    """
    ours, kept = marked(annotations), dict[Hint, str]()
    found: dict[str, str | None] = {}
    for hint, name in ANNOTATIONS.items():
        here, was, value = annotations.get(name), ours.get(hint), wanted.get(hint)
        if value is None:
            if was is not None and here == was:
                found[name] = None
        elif here == was:
            kept[hint] = value
            if here != value:
                found[name] = value
        elif was is not None:
            kept[hint] = was
    mark = ",".join(f"{hint}={value}" for hint, value in kept.items())
    if mark != annotations.get(MARK, ""):
        found[MARK] = mark or None
    return found
