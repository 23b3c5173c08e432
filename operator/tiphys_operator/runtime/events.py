"""News for people about an object, before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Seen(Protocol):
    """An object whose status is written and about which Events tell."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def plural(self) -> str: ...  # noqa: D102
    @property
    def namespace(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def uid(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def key(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class EventWrite:
    """Something that changed and that people should hear of."""

    about: Seen
    warning: bool
    reason: str
    message: str
