"""Two commits under one benchmark."""

from __future__ import annotations

import math
import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiphys_cli.app import app
from tiphys_testbed.bench.versions import VersionsPlan, checked_out, differences, run, speed_summary

FAKE = """import json, sys
assert sys.argv[1:4] == ["bench", "{bench}", "--json"], sys.argv
print(json.dumps({{"rows": {rows}}}))
"""


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True)


def commit(directory: Path, bench: str, rows: list[dict[str, Any]]) -> None:
    """A commit whose command prints these rows."""
    package = directory / "cli" / "tiphys_cli"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(FAKE.format(bench=bench, rows=repr(rows)))
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "rows")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    return made


def speed(p50_ms: float, p99_ms: float = 2.0) -> list[dict[str, Any]]:
    return [{"policy": "faasrank", "names": 500, "p50_ms": p50_ms, "p99_ms": p99_ms, "floor_p50_ms": 0.1, "floor_p99_ms": 0.5}]


def test_speed_is_compared_over_each_commits_own_floor(repository: Path) -> None:
    commit(repository, "extender", speed(0.2))
    commit(repository, "extender", speed(0.3))
    result = run(VersionsPlan("HEAD~1", "HEAD", rounds=2, repository=repository), lambda _: None)
    assert [row["p50_new_over_old"] for row in result.rows] == [1.5, 1.5]
    assert {claim.id: claim.holds for claim in result.claims} == {"versions-p50-upper": False, "versions-p99-upper": True}
    assert len(subprocess.run(["git", "-C", str(repository), "worktree", "list"], capture_output=True, check=True).stdout.splitlines()) == 1


def test_rows_are_compared_to_the_last_digit_and_timings_are_left_out(repository: Path) -> None:
    commit(repository, "selection", [{"seed": 0, "j": 0.1, "scheduling_s": 1.0}, {"seed": 1, "j": 0.2, "scheduling_s": 1.0}])
    commit(
        repository, "selection", [{"seed": 0, "j": 0.1, "scheduling_s": 2.0}, {"seed": 1, "j": math.nextafter(0.2, 1), "scheduling_s": 1.0}]
    )
    result = run(VersionsPlan("HEAD~1", "HEAD", "selection", repository=repository), lambda _: None)
    assert [(row["row"], row["keys"]) for row in result.rows] == [(1, "j")]
    assert not result.holds


def test_a_row_that_is_missing_differs_and_one_that_is_new_does_not() -> None:
    assert [row["row"] for row in differences("scaling", [{"a": 1}, {"a": 2}], [{"a": 1}])] == [1]
    assert differences("scaling", [{"a": 1}], [{"a": 0}, {"a": 1}]) == []
    assert [(row["keys"], row["old_j"], row["new_j"]) for row in differences("scaling", [{"a": 1, "j": 0.1}], [{"a": 1, "j": 0.2}])] == [
        ("j", 0.1, 0.2)
    ]


def test_intervals_are_students_t_over_rounds_of_the_logarithm() -> None:
    ratios = [1.0, 1.1, 0.9, 1.05, 1.2]
    (p50, _) = speed_summary([{"round": n, "p50_new_over_old": ratio, "p99_new_over_old": 1.0} for n, ratio in enumerate(ratios)])
    logs = [math.log(ratio) for ratio in ratios]
    half = 2.776 * statistics.stdev(logs) / math.sqrt(5)  # as tables print it
    ends = (math.exp(statistics.fmean(logs) - half), math.exp(statistics.fmean(logs) + half))
    assert (p50["ci95_low"], p50["ci95_high"]) == (round(ends[0], 4), round(ends[1], 4))
    (alone, _) = speed_summary([{"round": 0, "p50_new_over_old": 1.1, "p99_new_over_old": 1.0}])
    assert (alone["ci95_low"], alone["ci95_high"]) == (0.0, math.inf), "one round alone says nothing"


def test_rounds_are_what_is_repeated_not_cells() -> None:
    rows = [{"round": n, "p50_new_over_old": ratio, "p99_new_over_old": 1.0} for n in range(3) for ratio in (0.9, 1.0 / 0.9)]
    (p50, p99) = speed_summary(rows)
    assert (p50["mean"], p50["n"]) == (1.0, 3)
    assert (p99["ci95_low"], p99["ci95_high"]) == (1.0, 1.0)


def test_a_commit_that_is_not_there_is_named(repository: Path) -> None:
    commit(repository, "extender", speed(0.2))
    answer = CliRunner().invoke(app, ["bench", "versions", "no-such-commit"])
    assert answer.exit_code == 2
    assert "no-such-commit" in answer.stderr
    with checked_out(repository, "HEAD") as tree:
        assert (tree / "cli" / "tiphys_cli" / "__main__.py").is_file()
    assert not tree.exists()
