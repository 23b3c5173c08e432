"""Applications and tasks: what is known of work before it has run.

Solo demands follow MetaNet's AIoTBench mix; deadlines are multiples of an application's expected solo time, never of what a task
will really need: a deadline that knew would tell planners the hidden work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.selection.cloud.hosts import THREADS

ANY_POOL = np.uint64(2**64 - 1)
WORK_SIGMA = 0.2
"""Log-normal spread of a task's work around its application's mean."""
DEADLINE_CLASSES = (1.2, 2.0, 3.0)
"""Multiples of the expected solo time; every class is equally likely."""
DEADLINE_SLACK_S = 1.0


@dataclass(frozen=True, slots=True)
class Application:
    """What all tasks of one name have in common."""

    name: str
    work_core_s: float
    """Mean CPU seconds of a task."""
    ram_mib: float
    disk_mib: float

    @property
    def solo_s(self) -> float:
        """Expected seconds on a host of its own."""
        return self.work_core_s / THREADS

    def deadline_s(self, multiple: float) -> float:
        """Seconds after creation within which a task of that class has to end."""
        return multiple * self.solo_s + DEADLINE_SLACK_S


AIOTBENCH: tuple[Application, ...] = (
    Application("resnet18", 12, 600, 1000),
    Application("resnet34", 16, 800, 1400),
    Application("resnext50-32x4d", 22, 1200, 2000),
    Application("squeezenet", 6, 400, 500),
    Application("googlenet", 8, 500, 700),
    Application("mobilenet-v2", 7, 450, 600),
    Application("mnasnet", 6, 400, 500),
)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Some tasks, one entry each: everything here is known to planners."""

    application: IntArray
    """Index into the state's applications."""
    work_core_s: FloatArray
    """Expected, in CPU seconds."""
    age_s: FloatArray
    """Seconds since each task was created."""
    deadline_s: FloatArray
    """Deadline of each task, in seconds after it was created."""
    ram_mib: FloatArray
    disk_mib: FloatArray
    pools: HashArray
    """Bit mask of the pools a task may run in."""

    def __len__(self) -> int:
        return len(self.application)

    def take(self, rows: IntArray) -> Tasks:
        """Some of them, in the order of `rows`."""
        return Tasks(*(getattr(self, f.name)[rows] for f in fields(self)))


def expected_remaining(mean_core_s: float, used_core_s: float, sigma: float = WORK_SIGMA) -> float:
    """Mean of what is left of a log-normal demand, given that the task has used so much and still runs."""
    if used_core_s <= 0:
        return mean_core_s
    mu = math.log(mean_core_s) - sigma**2 / 2
    z = (math.log(used_core_s) - mu) / sigma
    beyond = _upper_tail(z)
    if beyond < 1e-9:  # far beyond every demand seen: what is left is about a tail's width
        return mean_core_s * sigma**2
    return max(mean_core_s * _upper_tail(z - sigma) / beyond - used_core_s, 0.0)


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))
