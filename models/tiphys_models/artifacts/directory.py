"""Artifacts in a directory: which changed since the last look, and whether they pass their checks. Reads files: not for an event loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import orjson

from tiphys_models.artifacts.files import read_part
from tiphys_models.artifacts.loaders import Loaded, load_file, loader_of
from tiphys_models.base.errors import ArtifactRefused

MOST_CARDS = 256
"""Most cards that are read of one directory; those that come later by name are ignored."""
Stamp = tuple[tuple[int, int, int], ...]
"""What changes when a card or its weights are written or, as a mounted ConfigMap does it, their symlink moves on."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One artifact: loaded, or why not."""

    name: str
    stamp: Stamp
    found: Loaded | ArtifactRefused | None
    """None: it belongs to a system that was not asked for."""


def cards_of(directory: Path, only: Collection[str] | None = None) -> list[Path]:
    """All cards (or of `only` these), by name."""
    return [card for card in sorted(directory.glob("*.json")) if only is None or card.stem in only][:MOST_CARDS]


def scan(
    directory: Path, stamps: dict[str, Stamp], only: Collection[str] | None = None, systems: Collection[str] | None = None
) -> tuple[set[str], list[Scanned]]:
    """Names of all cards, and those that changed, read and checked; artifacts of other systems than `systems` are not loaded."""
    names, changed = set(), []
    for card in cards_of(directory, only):
        names.add(card.stem)
        stamp = stamp_of(card)
        if stamps.get(card.stem) != stamp:
            changed.append(Scanned(card.stem, stamp, _load(card, systems)))
    return names, changed


def stamp_of(card: Path) -> Stamp:
    """Time, size and number of a card and the weights beside it; of what is not there, too."""
    parts = []
    for path in (card, card.with_suffix(".safetensors")):
        try:
            info = path.stat()
            parts.append((info.st_mtime_ns, info.st_size, info.st_ino))
        except OSError:
            parts.append((0, 0, 0))
    return tuple(parts)


def _load(card: Path, systems: Collection[str] | None) -> Loaded | ArtifactRefused | None:
    try:
        if systems is not None and _system(card) not in (None, *systems):
            return None
        loaded = load_file(card)
        if loaded.system == "placement" and loaded.card.name != card.stem:
            raise ArtifactRefused("CardInvalid", f"{card.name} calls itself {loaded.card.name!r}: file and card must have one name")
    except ArtifactRefused as refusal:
        return refusal
    except Exception as error:  # noqa: BLE001 - a file may hold anything; it must not keep the others from being read
        return ArtifactRefused("CardInvalid", f"{card.name}: {type(error).__name__}")
    return loaded


def _system(card: Path) -> str | None:
    """Where a card's policy decides; None if nobody knows: then checking says what is wrong with it."""
    try:
        said = orjson.loads(read_part(card))
    except orjson.JSONDecodeError:
        return None
    loader = loader_of(str(said.get("policy"))) if isinstance(said, dict) else None
    return loader.system if loader is not None else None
