"""Arrivals of tasks per interval, from (split, seed) alone, or from a CSV file.

`stationary`: Poisson, 1.2 tasks an interval. `regime`: the rate changes every 50 intervals between 0.3, 1.2 and 8, each third of the
time, in random order. `stress`: 60 to 100 tasks an interval with placement constraints and large disks; for correctness, not for tables.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.random import stream
from tiphys_models.selection.cloud.hosts import PAPER_FLEET
from tiphys_models.selection.cloud.tasks import AIOTBENCH, ANY_POOL, DEADLINE_CLASSES, DEADLINE_SLACK_S, WORK_SIGMA, Application

INTERVAL_S = 10.0
INTERVALS = 1000
STATIONARY_RATE = 1.2
REGIME_RATES = (0.3, 1.2, 8.0)
REGIME_INTERVALS = 50
STRESS_RATES = (60.0, 100.0)
STRESS_POOLS = 4
WORKLOADS = ("stationary", "regime")
"""Workloads of the published tables."""
MOST_INTERVALS = 100_000
"""Most intervals of a CSV file: more than eleven days."""
CSV_COLUMNS = ("arrival_s", "cpu_core_s", "ram_mib", "disk_mib", "deadline_class")
MIXES: dict[str, tuple[float, ...]] = {
    "uniform": (1, 1, 1, 1, 1, 1, 1),
    "heavy": (1, 2, 4, 0.5, 1, 0.5, 0.5),
    "light": (1, 0.5, 0.25, 2, 2, 2, 2),
}
"""Relative frequency of each application."""


@dataclass(frozen=True, slots=True)
class TaskWorkload:
    """Tasks in order of creation. `work_core_s` is the hidden truth; everything else planners may know."""

    name: str
    split: str
    seed: int
    intervals: int
    interval_s: float
    applications: tuple[Application, ...]
    created_s: FloatArray
    application: IntArray
    work_core_s: FloatArray
    deadline_s: FloatArray
    ram_mib: FloatArray
    disk_mib: FloatArray
    pools: HashArray
    pools_count: int = 1

    def __len__(self) -> int:
        return len(self.created_s)

    def presented_at(self) -> IntArray:
        """The first interval at whose start each task is known."""
        return np.asarray(np.ceil(self.created_s / self.interval_s - 1e-9), np.int64)

    def with_future_permuted(self, interval: int, rng: np.random.Generator) -> TaskWorkload:
        """Another future: tasks presented after `interval` keep their times, and everything else of them changes places."""
        first = int(np.searchsorted(self.presented_at(), interval + 1))
        order = np.concatenate([np.arange(first), first + rng.permutation(len(self) - first)])
        moved = {name: getattr(self, name)[order] for name in ("application", "work_core_s", "deadline_s", "ram_mib", "disk_mib", "pools")}
        return replace(self, **moved)


def rates(name: str, intervals: int, rng: np.random.Generator) -> FloatArray:
    """Expected tasks of every interval."""
    if name == "stationary":
        return np.full(intervals, STATIONARY_RATE)
    if name == "regime":
        blocks = -(-intervals // REGIME_INTERVALS)
        order = np.concatenate([rng.permutation(len(REGIME_RATES)) for _ in range(-(-blocks // len(REGIME_RATES)))])
        return np.repeat(np.array(REGIME_RATES)[order], REGIME_INTERVALS)[:intervals]
    if name == "stress":
        return rng.uniform(*STRESS_RATES, intervals)
    raise InvalidInput(f"no workload is called {name!r}: there are stationary, regime and stress")


def make_workload(
    name: str, split: str, seed: int, intervals: int = INTERVALS, *, mix: str = "uniform", within_interval: bool = False
) -> TaskWorkload:
    """Tasks arrive at the start of an interval; `within_interval`: uniformly in the one before, so that they wait for its end."""
    rng = stream("selection", split, name, seed, mix)
    counts = rng.poisson(rates(name, intervals, rng))
    count = int(counts.sum())
    share = np.array(MIXES[mix], np.float64)
    application = rng.choice(len(AIOTBENCH), count, p=share / share.sum())
    work = _column("work_core_s")[application] * np.exp(rng.normal(-(WORK_SIGMA**2) / 2, WORK_SIGMA, count))
    multiple = np.array(DEADLINE_CLASSES)[rng.integers(0, len(DEADLINE_CLASSES), count)]
    interval = np.repeat(np.arange(intervals), counts).astype(np.float64)
    early = np.sort(rng.uniform(0, 1, count)) if within_interval else np.zeros(count)
    created = np.sort(np.maximum(interval - early, 0.0)) * INTERVAL_S
    disk = _column("disk_mib")[application]
    pools = np.full(count, ANY_POOL)
    if name == "stress":
        disk = disk * rng.choice((1.0, 8.0), count, p=(0.8, 0.2))
        pools = np.where(rng.uniform(size=count) < 0.3, np.uint64(1) << rng.integers(0, STRESS_POOLS, count).astype(np.uint64), ANY_POOL)
    return TaskWorkload(
        name, split, seed, intervals, INTERVAL_S, AIOTBENCH, created, application.astype(np.int64), work,
        multiple * _column("solo_s")[application] + DEADLINE_SLACK_S, _column("ram_mib")[application], disk, pools,
        STRESS_POOLS if name == "stress" else 1,
    )  # fmt: skip


def _column(name: str) -> FloatArray:
    return np.array([getattr(app, name) for app in AIOTBENCH], np.float64)


def read_workload(path: Path) -> tuple[TaskWorkload, str]:
    """(tasks of a CSV file, sha256). Columns: arrival_s, cpu_core_s, ram_mib, disk_mib, deadline_class (a multiple of the solo time).

    A further column `application` groups tasks whose demands are alike; without it all tasks are one application. What planners
    know of a task's demand is its application's mean.
    """
    try:
        raw = path.read_bytes()
        lines = list(csv.DictReader(raw.decode("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"--workload: cannot read {path.name}: {error}") from error
    missing = [c for c in CSV_COLUMNS if not lines or c not in lines[0]]
    if missing:
        raise InvalidInput(f"--workload: {path.name} needs the columns {', '.join(CSV_COLUMNS)} and at least one line; no {missing[0]!r}")
    table = _numbers(path.name, lines)
    order = np.argsort(table[:, 0], kind="stable")
    table, lines = table[order], [lines[i] for i in order]
    names = sorted({line.get("application") or "task" for line in lines})
    application = np.array([names.index(line.get("application") or "task") for line in lines], np.int64)
    apps = tuple(Application(n, *(float(v) for v in table[application == i, 1:4].mean(axis=0))) for i, n in enumerate(names))
    solo = np.array([a.solo_s for a in apps])[application]
    intervals = int(table[-1, 0] // INTERVAL_S) + 1
    tasks = TaskWorkload(
        path.stem, "file", 0, intervals, INTERVAL_S, apps, table[:, 0], application, table[:, 1], table[:, 4] * solo + DEADLINE_SLACK_S,
        table[:, 2], table[:, 3], np.full(len(table), ANY_POOL),
    )  # fmt: skip
    return tasks, sha256(raw).hexdigest()


def _numbers(name: str, lines: list[dict[str, str]]) -> FloatArray:
    rows = []
    largest = [max(getattr(kind, size) for kind, _ in PAPER_FLEET) for size in ("ram_mib", "disk_mib")]
    for number, line in enumerate(lines, start=2):
        try:
            row = [float(line[c]) for c in CSV_COLUMNS]
        except (TypeError, ValueError):
            raise InvalidInput(f"--workload: {name}, line {number}: not numbers") from None
        if not all(np.isfinite(row)) or row[0] < 0 or row[1] <= 0 or min(row[2:]) < 0:
            raise InvalidInput(f"--workload: {name}, line {number}: arrival >= 0, work > 0, sizes and class >= 0 are wanted")
        if row[0] >= MOST_INTERVALS * INTERVAL_S:
            raise InvalidInput(f"--workload: {name}, line {number}: arrives after {MOST_INTERVALS} intervals")
        if row[2] > largest[0] or row[3] > largest[1]:
            raise InvalidInput(f"--workload: {name}, line {number}: no host has {row[2]:g} MiB of RAM and {row[3]:g} MiB of disk")
        rows.append(row)
    return np.array(rows, np.float64)
