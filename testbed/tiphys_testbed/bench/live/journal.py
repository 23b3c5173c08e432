"""What was measured already: a line of JSON a run that has ended, in the tools' cache, so that hours of runs may be interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.lab.report import Row
from tiphys_testbed.tools.toolbox import cache_directory

FILE = "live-placement.jsonl"


@dataclass(frozen=True, slots=True)
class RunKey:
    """What makes a run the same as another one."""

    world: str
    group: str
    seed: int
    fault: str
    inputs: str
    """The hash of everything that decides what is measured."""


class Journal:
    """Lines are only added. A run that was disturbed is written down, too."""

    def __init__(self, path: Path | None, *, read: bool = True) -> None:
        """`path`: None keeps it in memory only. Not `read`: what it says of former runs is not looked at, and newer lines are added."""
        self._path = path
        self._runs: dict[RunKey, list[list[Row]]] = {}
        if read and path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            entry: Mapping[str, Any] = orjson.loads(line)
            key = RunKey(**entry["key"])
            rows = list(entry["rows"])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return  # a run was interrupted while its line was written, or an older version wrote it: it is played again
        self._runs.setdefault(key, []).append(rows)

    def attempts(self, key: RunKey) -> list[list[Row]]:
        """Rows of every run under that key, disturbed ones included."""
        return self._runs.get(key, [])

    def add(self, key: RunKey, rows: list[Row]) -> None:
        """A run has ended."""
        self._runs.setdefault(key, []).append(rows)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            entry = {"key": {name: getattr(key, name) for name in RunKey.__slots__}, "rows": rows}
            with self._path.open("ab") as file:
                file.write(orjson.dumps(entry) + b"\n")


def default_path() -> Path:
    """Where the journal lies."""
    return cache_directory() / "bench" / FILE
