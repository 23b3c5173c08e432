"""News for people, before it is written."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_operator.observation import Seen


@dataclass(frozen=True, slots=True)
class EventWrite:
    """Something that changed and that people should hear of."""

    about: Seen
    warning: bool
    reason: str
    message: str
