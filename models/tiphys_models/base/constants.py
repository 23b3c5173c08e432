"""Constants that a command of this repository found, each with the run it comes from: command, commit, seeds and split.

Whoever runs such a command again changes `constants.json`, never the code that uses the value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True, slots=True)
class Constant:
    """A value and where it comes from."""

    value: Any
    command: str
    """What finds it again."""
    commit: str
    """Where the command found this value."""
    seeds: tuple[int, ...]
    split: str
    """Workloads that it was chosen on; never the test split."""
    used_by: str
    """`MODULE:NAME` of the value in use."""


@lru_cache(maxsize=1)
def constants() -> dict[str, Constant]:
    """All of them, by name; read once."""
    found = json.loads(FILE.read_bytes())
    return {
        name: Constant(said["value"], said["command"], said["commit"], tuple(said["seeds"]), said["split"], said["usedBy"])
        for name, said in found.items()
    }


def constant(name: str) -> Any:
    """The value of that name, as the file says it: floats keep every digit."""
    return constants()[name].value


def number(name: str) -> float:
    """The value of that name as a float."""
    return float(constant(name))
