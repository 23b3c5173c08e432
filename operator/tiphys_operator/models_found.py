"""Which model artifacts are mounted, and whether each passes its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_models.artifacts.score_network import load_network
from tiphys_models.domain.errors import ArtifactRefused

_MAX_CARDS = 256


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
_Stamp = tuple[int, int, int, int]


class ModelShelf:
    """The models of one directory; a file is read again only when its time or size changed."""

    def __init__(self, directory: Path | None, only: Sequence[str] = ()) -> None:
        """`only`: names to look at; empty for all that are there."""
        self._directory, self._only = directory, only
        self._known: dict[str, tuple[_Stamp, ModelFound | ModelRefused]] = {}

    def stamps(self) -> dict[str, _Stamp]:
        """Time and size of every card and its weights: equal if nothing changed."""
        if self._directory is None:
            return {}
        cards = [card for card in sorted(self._directory.glob("*.json")) if not self._only or card.stem in self._only]
        return {card.stem: file_stamp(card) for card in cards[:_MAX_CARDS]}

    def scan(self) -> Models:
        """All artifacts by name. Reads files: not for the event loop."""
        if self._directory is None:
            return {}
        known = {}
        for name, stamp in self.stamps().items():
            former = self._known.get(name)
            known[name] = former if former is not None and former[0] == stamp else (stamp, _load(self._directory / f"{name}.json"))
        self._known = known
        return {name: found for name, (_, found) in known.items()}


def file_stamp(card: Path) -> _Stamp:
    """Time and size of a card and its weights."""
    return (*_time_and_size(card), *_time_and_size(card.with_suffix(".safetensors")))


def _time_and_size(path: Path) -> tuple[int, int]:
    try:
        stat = path.stat()
    except OSError:
        return 0, -1  # loading says what is wrong with it
    return stat.st_mtime_ns, stat.st_size


def _load(card: Path) -> ModelFound | ModelRefused:
    try:
        network = load_network(card)
    except ArtifactRefused as error:
        return ModelRefused(error.reason, str(error))
    if network.card.name != card.stem:
        return ModelRefused("CardInvalid", f"CardInvalid: {card.name} names itself {network.card.name!r}: rename the file or the card")
    return ModelFound(network.card.policy, network.card.sha256)
