"""A trained artifact becomes a shipped one: checked as a service would, copied, and listed in the table. Twice changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tiphys_models.artifacts import files
from tiphys_models.artifacts.card import Provenance
from tiphys_models.artifacts.files import read_parts
from tiphys_models.artifacts.loaders import Loaded, load
from tiphys_models.artifacts.shipped import TABLE, WEIGHTS, Role, ShippedModel, read_table, write_table
from tiphys_models.artifacts.tensors import unpack
from tiphys_models.base.errors import InvalidInput

SEEDS = "seeds"
NO_TEST_BED = "the weights of the papers' own rows come with the test bed: pip install tiphys-testbed"


@dataclass(frozen=True, slots=True)
class Shipped:
    """What became of one artifact."""

    name: str
    policy: str
    digest: str
    changed: tuple[str, ...]
    """Files that are other than before; empty if it was shipped already."""


def cards_in(source: Path) -> list[Path]:
    """The cards of a file, or of a directory with its training seeds."""
    if source.is_dir():
        found = [*sorted(source.glob("*.json")), *sorted((source / SEEDS).glob("*.json"))]
        if not found:
            raise InvalidInput(f"{source} holds no card: an artifact is NAME.json with NAME.safetensors")
        return found
    return [source]


def ship(
    cards: Sequence[Path],
    into: Path | None = None,
    *,
    role: Role | None = None,
    command: str = "",
    commit: str = "",
    table_path: Path | None = None,
) -> list[Shipped]:
    """Copy artifacts into a directory; all are checked before anything is written. To where they ship from: the table is kept, too.

    `into`: None for the home of each, which is the package for defaults and the test bed for all others.
    """
    own = into is None or into.resolve() in files.directories()
    kept = table_path if table_path is not None else TABLE if own else None
    checked = [(card, load(read_parts(card))) for card in cards]
    table = read_table(kept) if kept is not None and kept.exists() else {}
    before, after = dict(table), dict(table)
    for card, loaded in checked:
        name, former = _name(card), table.get(_name(card))
        what: Role = "seed" if name != card.stem else role or (former.role if former is not None else "default")
        after[name] = ShippedModel(loaded.system, loaded.policy, loaded.digest, what)
    homes = [into if into is not None else home_of(after[_name(card)].role) for card, _ in checked]
    done = [
        Shipped(_name(card), loaded.policy, loaded.digest, _copied(card, home / _name(card), command, commit))
        for (card, loaded), home in zip(checked, homes, strict=True)
    ]
    table = after
    if kept is not None and table != before:
        write_table(table, kept)
    return done


def home_of(role: Role) -> Path:
    """The directory where artifacts of a role ship from."""
    if role == "default":
        return WEIGHTS
    if not (found := files.brought()):
        raise InvalidInput(NO_TEST_BED)
    return found[0]


def _name(card: Path) -> str:
    return f"{SEEDS}/{card.stem}" if card.parent.name == SEEDS else card.stem


def _copied(card: Path, target: Path, command: str, commit: str) -> tuple[str, ...]:
    """Names of the files that changed."""
    parts = read_parts(card)
    text = _card(card, load(parts), command, commit) if command or commit else parts.card
    target.parent.mkdir(parents=True, exist_ok=True)
    changed = []
    for suffix, content in ((".safetensors", parts.weights), (".json", text)):
        path = target.with_name(target.name + suffix)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            changed.append(path.name)
    return tuple(changed)


def _card(path: Path, loaded: Loaded, command: str, commit: str) -> bytes:
    """The card with its system, shapes and the run that made it; everything else stays."""
    parts = read_parts(path)
    told = loaded.card.origin
    provenance = Provenance(command=command or told.command, commit=commit or told.commit, seeds=told.seeds, evidence=told.evidence)
    shapes = {name: array.shape for name, array in sorted(unpack(parts).items())}
    return loaded.card.model_copy(update={"system": loaded.system, "tensors": shapes, "provenance": provenance}).as_json()
