"""Decisions on disk: JSON lines in two files of bounded length, reread at start. Trouble with the disk never reaches an answer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import orjson

from tiphys_extender.placement.decisions import Record

_log = logging.getLogger(__name__)
_NAME = "decisions.jsonl"


class DecisionFile:
    """Writes what a DecisionLog reports; runs in a worker thread, one call at a time."""

    def __init__(self, directory: Path, max_lines: int) -> None:
        self._path = directory / _NAME
        self._older = directory / f"{_NAME}.1"
        self._max_lines = max_lines
        self._lines = 0
        self._failing = False
        self._torn = True
        """Whether the file may end in the middle of a line: a process died there, or the disk was full. Unknown at the start."""

    def read(self) -> list[Record]:
        """All decisions on disk, oldest first, without gaps; unreadable lines are left out."""
        records: dict[int, Record] = {}
        for path in (self._older, self._path):
            try:
                lines = list(filter(None, path.read_bytes().splitlines()))
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("cannot reread decisions", extra={"fields": {"file": path.name, "error": error.strerror}})
                continue
            self._lines = len(lines)
            unreadable = sum(not _take(line, records) for line in lines)
            if unreadable:
                _log.warning("left out lines of the decision log", extra={"fields": {"file": path.name, "lines": unreadable}})
        return _newest_run(records)[-self._max_lines :]

    def write(self, changes: Sequence[Record | tuple[int, str]]) -> int:
        """Append changes; how many could not be written."""
        lines = [orjson.dumps(c.stored() if isinstance(c, Record) else {"seq": c[0], "chosen": c[1]}) for c in changes]
        try:
            if self._lines + len(lines) > 2 * self._max_lines and self._path.exists():
                self._path.replace(self._older)
                self._lines = 0
            with self._path.open("ab") as file:
                file.write(b"\n" * self._torn + b"\n".join(lines) + b"\n")
        except OSError as error:
            if not self._failing:
                _log.warning("cannot write decisions, they are kept in memory only", extra={"fields": {"error": error.strerror}})
            self._failing = self._torn = True
            return len(lines)
        self._lines += len(lines)
        self._failing = self._torn = False
        return 0


def _take(line: bytes, records: dict[int, Record]) -> bool:
    try:
        item = orjson.loads(line)
        if "uid" in item:
            record = Record.from_json(item)
            records[record.seq] = record
        elif (known := records.get(item["seq"])) is not None:
            known.chosen = str(item["chosen"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return False
    return True


def _newest_run(records: dict[int, Record]) -> list[Record]:
    """The longest gapless end: the ring counts on consecutive numbers."""
    if not records:
        return []
    seq = max(records)
    run = []
    while seq in records:
        run.append(records[seq])
        seq -= 1
    return run[::-1]
