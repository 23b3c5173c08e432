"""The weights that come with the package, as `shipped.json` lists them: what serves without anything mounted or published."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import orjson

from tiphys_models.artifacts import files
from tiphys_models.artifacts.card import System

WEIGHTS = files.SHIPPED
TABLE = Path(__file__).with_name("shipped.json")
Role = Literal["default", "paper", "seed"]
"""default: what its policy decides with unless it names a model. paper: trained as a paper says, for the tables. seed: a further training
seed of a shipped model, for the tables. Only defaults are in the package; the test bed brings the others."""


@dataclass(frozen=True, slots=True)
class ShippedModel:
    """A line of the table."""

    system: System
    policy: str
    sha256: str
    role: Role


def read_table(path: Path = TABLE) -> dict[str, ShippedModel]:
    """Shipped models by name; those of training seeds are called `seeds/NAME`."""
    return {name: ShippedModel(**line) for name, line in orjson.loads(path.read_bytes()).items()}


def write_table(table: dict[str, ShippedModel], path: Path = TABLE) -> None:
    """Sorted, so that a change shows as one."""
    ordered = {name: asdict(table[name]) for name in sorted(table)}
    path.write_bytes(orjson.dumps(ordered, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@lru_cache(maxsize=1)
def shipped() -> dict[str, ShippedModel]:
    """The table of this installation, read once."""
    return read_table()


def names_of(system: System | str) -> tuple[str, ...]:
    """Models of a system that policies can name, defaults first."""
    found = [(line.role != "default", name) for name, line in shipped().items() if line.system == system and line.role != "seed"]
    return tuple(name for _, name in sorted(found))


def is_carried(name: str) -> bool:
    """Whether services carry the weights of a name; those of the papers' own rows and of training seeds are for `tiphys model ship`."""
    line = shipped().get(name)
    return line is not None and line.role == "default"


def is_unshipped(name: str) -> bool:
    """Whether a name stands in the table and its weights are not in this installation."""
    return name in shipped() and not files.has_weights(name)


SHIPPED = names_of("placement")
"""Placement models, the default first."""
