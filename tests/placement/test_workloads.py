"""Workloads from seeds alone, and from rows of a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.sim.azure import read_trace, trace_workload
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.workloads import KINDS, MAX_PER_COLUMN, MULTI, SPLITS, make_workload


@pytest.mark.parametrize("name", KINDS)
def test_calls_and_length_are_those_of_the_table(name: str) -> None:
    workload = make_workload(name, "test", 3)
    kind = KINDS[name]
    assert len(workload) == kind.calls
    assert (np.diff(workload.arrival_s) >= 0).all()
    assert 0 <= workload.arrival_s[0] <= workload.arrival_s[-1] <= kind.length_s
    assert set(workload.function.tolist()) == set(range(len(FUNCTIONS)))
    per_column = np.zeros((len(FUNCTIONS), kind.length_s))
    np.add.at(per_column, (workload.function, workload.arrival_s.astype(int)), 1)
    assert per_column.max() <= MAX_PER_COLUMN


def test_load_of_the_paper_is_over_a_fixed_length_and_ours_over_the_workload_s() -> None:
    """Table III's load is CPU seconds over 80 cores times 58.25 s in every row; over the row's own length most are near saturation."""
    published = {"SC": 93.75, "SA": 132.9, "M1": 56.67, "M6": 74.95, "M10": 100.0}
    for name, percent in published.items():
        assert 100 * KINDS[name].paper_load == pytest.approx(percent, abs=0.1)
    assert 100 * KINDS["M1"].true_load == pytest.approx(89.2, abs=0.1)


def test_bursts_and_timers_are_both_there() -> None:
    dispersion = []
    for seed in range(6):
        workload = make_workload("M5", "train", seed)
        for f in range(len(FUNCTIONS)):
            counts = np.bincount(workload.arrival_s[workload.function == f].astype(int), minlength=44)
            dispersion.append(counts.var(ddof=1) / counts.mean())
    assert 0.3 < np.mean(np.array(dispersion) < 1) < 0.8
    assert max(dispersion) > 2.5


def test_splits_and_seeds_never_share_arrivals() -> None:
    seen = {tuple(make_workload("M1", split, seed).arrival_s[:3]) for split in SPLITS for seed in range(5)}
    assert len(seen) == 15
    np.testing.assert_array_equal(make_workload("M1", "test", 4).noise, make_workload("M1", "test", 4).noise)


def test_noise_has_mean_one_and_the_stated_spread() -> None:
    noise = np.concatenate([make_workload(name, "train", s).noise for name in MULTI for s in range(10)])
    assert noise.mean() == pytest.approx(1, abs=0.01)
    assert noise.std() == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(("nodes", "times"), [(5, 0.5), (50, 5), (200, 20)])
def test_calls_grow_with_the_cluster(nodes: int, times: float) -> None:
    assert len(make_workload("M2", "test", 0, nodes)) == pytest.approx(178 * times, abs=1)


def test_an_unknown_workload_names_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="M10"):
        make_workload("M11", "test", 0)


def write_trace(directory: Path, rows: list[list[int]]) -> None:
    header = ["HashFunction", "Trigger", *map(str, range(1, 61))]
    lines = [",".join(header)] + [",".join([str(i), "http", *map(str, row)]) for i, row in enumerate(rows)]
    (directory / "invocation_traces.csv").write_text("\n".join(lines) + "\n")


def test_only_rows_of_the_paper_s_size_are_used_and_seen_ones_are_dropped(tmp_path: Path) -> None:
    good = [[1 if c % 2 else 0 for c in range(60)] for _ in range(12)]
    sparse, crowded = [0] * 60, [11] + [1] * 20 + [0] * 39
    write_trace(tmp_path, [*good, sparse, crowded])
    trace = read_trace(tmp_path, seen={"0", "5", "999"})
    assert (len(trace.names), trace.total, trace.dropped_as_seen) == (10, 14, 2)
    workload = trace_workload(trace, seed=1)
    assert len(workload) == 300
    assert workload.arrival_s.max() <= 60
    np.testing.assert_array_equal(workload.arrival_s, trace_workload(trace, seed=1).arrival_s)


@pytest.mark.parametrize(
    ("content", "message"),
    [("HashFunction,1,2\na,1,1\n", "columns 1..60"), ("HashFunction," + ",".join(map(str, range(1, 61))) + "\na,x\n", "line 2")],
)
def test_a_broken_trace_says_where(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "invocation_traces.csv").write_text(content)
    with pytest.raises(InvalidInput, match=message):
        read_trace(tmp_path)


def test_a_missing_or_too_small_trace_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--trace-dir"):
        read_trace(tmp_path)
    write_trace(tmp_path, [[1 if c % 2 else 0 for c in range(60)]] * 3)
    with pytest.raises(InvalidInput, match="needs 10"):
        read_trace(tmp_path)
