"""Artifacts in a directory: which changed since the last look, and whether they pass their checks. Reads files: not for the event loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tiphys_models.artifacts.score_network import ScoreNetwork, load_network
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.policies.registry import PolicyName, is_learned

Stamp = tuple[tuple[int, int, int], ...]
"""What changes when a card or its weights are written or, as a mounted ConfigMap does it, their symlink moves on."""


@dataclass(frozen=True, slots=True)
class Scanned:
    """One artifact: a network, or why not."""

    name: str
    stamp: Stamp
    found: ScoreNetwork | ArtifactRefused


def scan(directory: Path, stamps: dict[str, Stamp], only: Collection[str] | None = None) -> tuple[set[str], list[Scanned]]:
    """Names of all cards (or of `only` these), and those that changed, read and checked."""
    cards = [card for card in sorted(directory.glob("*.json")) if only is None or card.stem in only]
    names, changed = set(), []
    for card in cards:
        names.add(card.stem)
        stamp = stamp_of(card)
        if stamps.get(card.stem) != stamp:
            changed.append(Scanned(card.stem, stamp, _load(card)))
    return names, changed


def check_policy(network: ScoreNetwork, origin: str) -> ScoreNetwork:
    """The same network, if it is for a policy that takes one."""
    if network.card.policy not in set(PolicyName) or not is_learned(PolicyName(network.card.policy)):
        raise ArtifactRefused("UnknownPolicy", f"{origin} is for policy {network.card.policy!r}, which takes no model")
    return network


def _load(card: Path) -> ScoreNetwork | ArtifactRefused:
    try:
        network = load_network(card)
        if network.card.name != card.stem:
            raise ArtifactRefused("CardInvalid", f"{card.name} calls itself {network.card.name!r}: file and card must have one name")
        return check_policy(network, card.name)
    except ArtifactRefused as refusal:
        return refusal
    except Exception as error:  # noqa: BLE001 - a file may hold anything; it must not keep the others from being read
        return ArtifactRefused("CardInvalid", f"{card.name}: {type(error).__name__}")


def stamp_of(card: Path) -> Stamp:
    """Of a card and the weights beside it; of what is not there, too."""
    parts = []
    for path in (card, card.with_suffix(".safetensors")):
        try:
            info = path.stat()
            parts.append((info.st_mtime_ns, info.st_size, info.st_ino))
        except OSError:
            parts.append((0, 0, 0))
    return tuple(parts)
