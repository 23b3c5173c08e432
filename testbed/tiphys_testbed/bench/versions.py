"""Two commits of this repository under one benchmark, alternated on one machine: is the new one as fast, does it still measure the same?"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.base.errors import InvalidInput, Unavailable
from tiphys_models.lab.intervals import interval
from tiphys_models.lab.report import Claim, Result, Row

ROOTS = ("operator", "extender", "models", "cli", "testbed")
"""Where the packages of a checkout lie; they go in front of what is installed."""
SPEED_BOUND = 1.05
"""The upper end of new over old, each over its own floor."""
RUN_DEADLINE_S = 3600.0
_GIT_DEADLINE_S = 120.0
_OPEN_CALLS = 10_000
"""How many calls were open in every row before rows said so."""

NOT_COMPARED: Mapping[str, frozenset[str]] = {
    "placement": frozenset({"decision_us", "wall_s"}),
    "selection": frozenset({"scheduling_s", "wall_s"}),
    "scaling": frozenset({"wall_s"}),
    "binding": frozenset({"wall_s"}),
}
"""Keys of rows that are timings: they differ from run to run of one commit."""


@dataclass(frozen=True, slots=True)
class VersionsPlan:
    """Which commits, which benchmark, how often."""

    old: str
    new: str
    bench: str = "extender"
    rounds: int = 5
    arguments: tuple[str, ...] = ()
    repository: Path = Path()
    quick: bool = False


def run(plan: VersionsPlan, tell: Callable[[str], None]) -> Result:
    """Alternate both commits; raises Unavailable if one of them cannot run."""
    began_s = time.monotonic()
    with checked_out(plan.repository, plan.old) as old, checked_out(plan.repository, plan.new) as new:
        inputs = {"old": _commit(old), "new": _commit(new), "compared": plan.bench, "rounds": plan.rounds}
        if plan.bench == "extender":
            rows = _speed(plan, old, new, tell)
            summary = speed_summary(rows)
            claims = [Claim(f"versions-{row['metric']}-upper", row["ci95_high"], SPEED_BOUND, "<=") for row in summary]
        else:
            rows = differences(plan.bench, *(_bench(plan, tree, name, tell)["rows"] for name, tree in (("old", old), ("new", new))))
            summary = []
            claims = [Claim(f"versions-{plan.bench}-rows-that-differ", float(len(rows)), 0.0, "<=")]
    return Result("versions", plan.quick, (0,), time.monotonic() - began_s, inputs, rows, summary, claims)


def differences(bench: str, old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Rows of the old commit that the new one does not have to the last digit, timings left out; rows that are new are no difference."""
    left_out = NOT_COMPARED.get(bench, frozenset())
    there = [_kept(row, left_out) for row in new]
    exact = {orjson.dumps(row, option=orjson.OPT_SORT_KEYS) for row in there}
    by_cell = {_cell(row): row for row in there}
    found: list[Row] = []
    for number, row in enumerate(_kept(row, left_out) for row in old):
        if orjson.dumps(row, option=orjson.OPT_SORT_KEYS) in exact:
            continue
        after = by_cell.get(_cell(row), {})
        keys = [key for key in {**row, **after} if row.get(key) != after.get(key)]
        told = {f"{which}_{key}": values.get(key) for key in keys[:3] for which, values in (("old", row), ("new", after))}
        found.append({"row": number, "keys": ", ".join(keys), **told})
    return found


def speed_summary(rows: Sequence[Row]) -> list[Row]:
    """The geometric mean of new over old over all cells, for p50 and p99, with Student's t interval over rounds."""
    summary = []
    for metric in ("p50", "p99"):
        by_round: dict[int, list[float]] = {}
        for row in rows:
            by_round.setdefault(row["round"], []).append(math.log(row[f"{metric}_new_over_old"]))
        logs = interval([statistics.fmean(logs) for logs in by_round.values()])
        ends = {"mean": logs.mean, "ci95_low": logs.ci95_low, "ci95_high": logs.ci95_high}
        summary.append({"metric": metric, **{key: round(math.exp(log), 4) for key, log in ends.items()}, "n": logs.n})
    return summary


@contextmanager
def checked_out(repository: Path, commit: str) -> Iterator[Path]:
    """A commit's files in a directory of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tiphys-version-") as directory:
        tree = Path(directory) / "tree"
        _git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            _git(repository, "worktree", "remove", "--force", str(tree))


def _speed(plan: VersionsPlan, old: Path, new: Path, tell: Callable[[str], None]) -> list[Row]:
    rows: list[Row] = []
    for number in range(plan.rounds):
        order = (("old", old), ("new", new)) if number % 2 == 0 else (("new", new), ("old", old))
        found = {
            name: {(r["policy"], r.get("open_calls", _OPEN_CALLS), r["names"]): r for r in _bench(plan, tree, name, tell)["rows"]}
            for name, tree in order
        }
        for cell, after in found["new"].items():
            before = found["old"].get(cell)
            if before is None:
                continue
            over = {q: [r[f"{q}_ms"] / r[f"floor_{q}_ms"] for r in (before, after)] for q in ("p50", "p99")}
            rows.append(
                {
                    "round": number,
                    "policy": cell[0],
                    "open_calls": cell[1],
                    "names": cell[2],
                    **{f"{q}_old_over_floor": round(pair[0], 3) for q, pair in over.items()},
                    **{f"{q}_new_over_floor": round(pair[1], 3) for q, pair in over.items()},
                    **{f"{q}_new_over_old": round(pair[1] / pair[0], 4) for q, pair in over.items()},
                    # a floor that has become slower would flatter what stands on it
                    "floor_p50_new_over_old": round(after["floor_p50_ms"] / before["floor_p50_ms"], 4),
                    "p50_ms_old": before["p50_ms"],
                    "p50_ms_new": after["p50_ms"],
                }
            )
    return rows


def _bench(plan: VersionsPlan, tree: Path, name: str, tell: Callable[[str], None]) -> dict[str, Any]:
    tell(f"{name}: {plan.bench} of {_commit(tree)}")
    path = os.pathsep.join(str(tree / root) for root in ROOTS)
    command = [sys.executable, "-m", "tiphys_cli", "bench", plan.bench, "--json", *plan.arguments, *(["--quick"] if plan.quick else [])]
    try:
        answer = subprocess.run(
            command, cwd=tree, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=RUN_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{plan.bench} of the {name} commit did not end within {RUN_DEADLINE_S:.0f} s") from None
    if answer.returncode != 0:
        raise Unavailable(f"{plan.bench} of the {name} commit failed: {answer.stderr.decode(errors='replace').strip()[-500:]}")
    return dict(orjson.loads(answer.stdout))


def _cell(row: Row) -> tuple[tuple[str, Any], ...]:
    """What was measured, not what came of it: the words and whole numbers of a row."""
    return tuple((key, value) for key, value in row.items() if isinstance(value, str | int))


def _kept(row: Row, left_out: frozenset[str]) -> Row:
    return {key: value for key, value in row.items() if key not in left_out}


def _commit(tree: Path) -> str:
    return _git(tree, "rev-parse", "--short=12", "HEAD").strip()


def _git(directory: Path, *arguments: str) -> str:
    answer = subprocess.run(["git", "-C", str(directory), *arguments], capture_output=True, text=True, timeout=_GIT_DEADLINE_S, check=False)
    if answer.returncode != 0:
        raise InvalidInput(f"git {' '.join(arguments[:2])}: {answer.stderr.strip()}")
    return answer.stdout
