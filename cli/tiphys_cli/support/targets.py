"""What `tiphys explain` can be asked about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tiphys_models.api.resources import SCALING_POLICY, SCHEDULING_POLICY, Resource
from tiphys_models.base.errors import InvalidInput

Kind = Literal["pod", "sp", "scp", "stream"]
_WORDS: Final[dict[str, Kind]] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "stream": "stream",
    "streams": "stream",
    **dict.fromkeys((SCHEDULING_POLICY.short_name, SCHEDULING_POLICY.plural, SCHEDULING_POLICY.kind.lower()), "sp"),
    **dict.fromkeys((SCALING_POLICY.short_name, SCALING_POLICY.plural, SCALING_POLICY.kind.lower()), "scp"),
}
RESOURCE_OF: Final[dict[Kind, Resource]] = {"sp": SCHEDULING_POLICY, "scp": SCALING_POLICY}


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to explain."""

    kind: Kind
    name: str


def parse_target(text: str) -> Target:
    """`pod/NAME`, `NAME` alone for a pod, `sp/NAME`, `scp/NAME`, `stream/ID`; kinds also by their long names."""
    word, slash, name = text.partition("/")
    if not slash:
        word, name = "pod", word
    kind = _WORDS.get(word.lower())
    if kind is None or not name or "/" in name:
        raise InvalidInput(f"{text!r} names nothing that is explained: write pod/NAME, sp/NAME, scp/NAME or stream/ID")
    return Target(kind, name)
