"""The journal of `tiphys bench bill`: a line of JSON for each finished run, so that hours of runs can be broken off and gone on with.

A run is known by what decides its outcome: world, seed, lane, repetition, and a digest of programs, trace and settings. Void runs stay
in the journal and are played again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson

from tiphys_models.base.errors import InvalidInput
from tiphys_models.lab.report import Row
from tiphys_testbed.tools.toolbox import cache_directory


@dataclass(frozen=True, slots=True)
class RunKey:
    """What is played in one run."""

    world: str
    seed: int
    lane: str
    repetition: int
    """1 where the lane is played a second time on the same trace: the noise."""
    digest: str


def default_journal() -> Path:
    """The journal in the cache. A file, because directories there are swept when nobody owns them."""
    return cache_directory() / "bench" / "bill.jsonl"


class Journal:
    """Runs by their keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[RunKey, list[Row]] = {}
        if path.exists():
            for number, line in enumerate(path.read_bytes().splitlines(), 1):
                self._take(line, number)

    def done(self, key: RunKey) -> Row | None:
        """The run, if it was played and is not void."""
        return next((row for row in self._rows.get(key, ()) if not row["void"]), None)

    def voids(self, key: RunKey) -> int:
        """How often it was played in vain."""
        return sum(bool(row["void"]) for row in self._rows.get(key, ()))

    def add(self, key: RunKey, row: Row) -> None:
        """Write down a run at once, whole: several processes may append."""
        line = orjson.dumps({"key": _as_json(key), "row": row}, option=orjson.OPT_APPEND_NEWLINE)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)
        self._rows.setdefault(key, []).append(row)

    def found(self, keys: Iterable[RunKey]) -> list[Row]:
        """The rows of these runs, as far as they were played: void ones beside the good one."""
        return [row for key in keys for row in self._rows.get(key, ())]

    def _take(self, line: bytes, number: int) -> None:
        try:
            entry = orjson.loads(line)
            key, row = RunKey(**entry["key"]), entry["row"]
            row["void"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InvalidInput(f"{self.path}:{number} is no line of this journal ({error}); move the file away") from error
        self._rows.setdefault(key, []).append(row)


def _as_json(key: RunKey) -> Row:
    return {"world": key.world, "seed": key.seed, "lane": key.lane, "repetition": key.repetition, "digest": key.digest}
