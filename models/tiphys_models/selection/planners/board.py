"""What gradient planners decide on: a batch of waiting tasks x the hosts worth trying, as the numbers that their networks read.

Networks look at one host at a time (or at host and task nodes of a graph) with shared weights, never at "host 17 of 100": one set
of weights serves any fleet, and hosts that are alike are judged alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.selection.cloud.hosts import THREADS
from tiphys_models.selection.cloud.state import UNPLACED, CloudState
from tiphys_models.selection.cloud.tasks import Tasks

SCHEMA = "board/1"
BATCH = 8
"""Tasks decided together; more are taken batch by batch, each seeing where those before it went."""
HOST_INPUTS = (
    "cores/8",
    "idle W/100",
    "half W/100",
    "peak W/100",
    "USD/h",
    "tasks/4",
    "work/20",
    "longest/20",
    "work^2/400",
    "resume/10",
    "urgency/4",
)
TASK_INPUTS = ("one", "work/10", "work^2/100", "urgency")
"""Summed over a host's new tasks they say how many there are, how much work, how unequal, and how little they can wait."""


@dataclass(frozen=True, slots=True)
class Board:
    """One batch of waiting tasks beside the hosts worth trying."""

    hosts: IntArray
    """The host of every column."""
    host_inputs: FloatArray
    task_inputs: FloatArray
    allowed: BoolArray
    """Tasks x columns: room for the task alone, and its pool. Rows without any stay unplaced."""

    def columns_of(self, host: IntArray) -> IntArray:
        """Columns of these hosts; tasks without a host, or on one that is not worth trying, start on their first allowed column."""
        place = {h: c for c, h in enumerate(self.hosts.tolist())}
        first = self.allowed.argmax(axis=1)
        wanted = np.array([place.get(h, -1) for h in host.tolist()], np.int64).reshape(len(host))
        usable = (wanted >= 0) & self.allowed[np.arange(len(host)), np.maximum(wanted, 0)]
        return np.where(usable, wanted, first).astype(np.int64)

    def hosts_of(self, columns: IntArray) -> IntArray:
        """Host of every task whose column was chosen: the reverse of `columns_of`."""
        return np.where(self.allowed.any(axis=1), self.hosts[columns], UNPLACED).astype(np.int64)


def make_board(state: CloudState, tasks: Tasks, rows: IntArray, host: IntArray) -> Board:
    """The board of tasks `rows`, while all others are where `host` has them (UNPLACED ones are nowhere)."""
    others = np.setdiff1d(np.flatnonzero(host != UNPLACED), rows)
    fleet, size = state.fleet, len(state.fleet)
    at = np.concatenate([state.running.host, host[others]])
    work = np.concatenate([state.running.remaining_core_s, tasks.work_core_s[others]])
    running, placed = state.running.tasks, tasks.take(others)
    hurry = np.concatenate([
        urgency(state.running.remaining_core_s, running.age_s, running.deadline_s),
        urgency(placed.work_core_s, placed.age_s, placed.deadline_s),
    ])  # fmt: skip
    count = np.bincount(at, minlength=size)
    total, square = (np.asarray(np.bincount(at, weights, size), np.float64) for weights in (work, work**2))
    longest = np.zeros(size)
    np.maximum.at(longest, at, work)
    ram = state.free_ram_mib() - np.bincount(host[others], tasks.ram_mib[others], size)
    disk = state.free_disk_mib() - np.bincount(host[others], tasks.disk_mib[others], size)
    columns = _columns(state, count, total, longest, len(rows))
    power = fleet.power_curves()
    inputs = np.stack(
        [
            fleet.column("cores") / 8, power[:, 0] / 100, power[:, 5] / 100, power[:, -1] / 100, fleet.column("usd_per_hour"),
            count / 4, total / 20, longest / 20, square / 400, np.where(state.awake | (count > 0), 0.0, state.resume_s) / 10,
            np.bincount(at, hurry, size) / 4,
        ],
        axis=1,
    )  # fmt: skip
    bits = np.left_shift(np.uint64(1), fleet.pool[columns].astype(np.uint64))
    allowed = (
        (tasks.ram_mib[rows, None] <= ram[columns])
        & (tasks.disk_mib[rows, None] <= disk[columns])
        & ((tasks.pools[rows, None] & bits) != 0)
    )
    return Board(columns, inputs[columns], task_inputs(tasks.take(rows)), allowed)


def task_inputs(tasks: Tasks) -> FloatArray:
    """One line a task."""
    work = tasks.work_core_s
    return np.stack([np.ones(len(work)), work / 10, work**2 / 100, urgency(work, tasks.age_s, tasks.deadline_s)], axis=1)


def urgency(work_core_s: FloatArray, age_s: FloatArray, deadline_s: FloatArray) -> FloatArray:
    """1 for a task that meets its deadline only if it runs alone from now on, falling to 0 with the time it has to spare."""
    alone = np.maximum(work_core_s / THREADS, 0.1)
    spare = (deadline_s - age_s - alone) / (alone + 1.0)
    return np.asarray(np.exp(-np.clip(spare, -0.5, 10.0)))


def _columns(state: CloudState, count: IntArray, total: FloatArray, longest: FloatArray, batch: int) -> IntArray:
    """Hosts merged into classes: of those that look alike, no more than there are tasks can be of use. Hosts in use come first."""
    order = np.lexsort((np.arange(len(count)), ~state.awake, count == 0))
    kept: dict[tuple[int, int, bool, int, int, int], int] = {}
    chosen = []
    for h in order.tolist():
        key = (
            int(state.fleet.type_of[h]), int(state.fleet.pool[h]), bool(state.awake[h] or state.resume_s == 0),
            int(count[h]), round(2 * float(total[h])), round(2 * float(longest[h])),
        )  # fmt: skip
        if kept.setdefault(key, 0) < batch:
            kept[key] += 1
            chosen.append(h)
    return np.array(chosen, np.int64)
