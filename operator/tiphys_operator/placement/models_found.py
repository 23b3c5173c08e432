"""Which model artifacts are mounted, and whether each passes its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_models.artifacts.directory import Stamp, cards_of, scan, stamp_of
from tiphys_models.artifacts.loaders import Loaded
from tiphys_models.base.errors import ArtifactRefused


@dataclass(frozen=True, slots=True)
class ModelFound:
    """An artifact that may serve."""

    policy: str
    """Registry name of the policy it is for."""
    digest: str
    """sha256 of the weights."""


@dataclass(frozen=True, slots=True)
class ModelRefused:
    """An artifact that must not serve."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ModelUnread:
    """An artifact that could not be looked at."""

    why: str


Check = ModelFound | ModelRefused | ModelUnread
Models = Mapping[str, ModelFound | ModelRefused]


class ModelShelf:
    """The models of one directory; a file is read again only when its time or size changed."""

    def __init__(self, directory: Path | None, only: Sequence[str] | None = None) -> None:
        """`only`: names to look at; None for all that are there."""
        self._directory, self._only = directory, only
        self._known: dict[str, tuple[Stamp, ModelFound | ModelRefused]] = {}

    def stamps(self) -> dict[str, Stamp]:
        """Time and size of every card and its weights: equal if nothing changed."""
        if self._directory is None:
            return {}
        return {card.stem: stamp_of(card) for card in cards_of(self._directory, self._only)}

    def scan(self) -> Models:
        """All artifacts by name. Reads files: not for the event loop."""
        if self._directory is None:
            return {}
        names, changed = scan(self._directory, {name: stamp for name, (stamp, _) in self._known.items()}, self._only)
        known = {name: known for name, known in self._known.items() if name in names}
        known |= {one.name: (one.stamp, found_of(one.found)) for one in changed if one.found is not None}
        self._known = known
        return {name: found for name, (_, found) in known.items()}


class ShippedShelf:
    """The models that come with the installation, from every directory; a name of the first one counts."""

    def __init__(self, directories: Sequence[Path], only: Sequence[str]) -> None:
        self._shelves = [ModelShelf(directory, only) for directory in reversed(directories)]

    def scan(self) -> Models:
        """See `ModelShelf`."""
        return {name: found for shelf in self._shelves for name, found in shelf.scan().items()}


def found_of(found: Loaded | ArtifactRefused) -> ModelFound | ModelRefused:
    """What statuses say of an artifact."""
    return ModelRefused(found.reason, str(found)) if isinstance(found, ArtifactRefused) else ModelFound(found.policy, found.digest)
