"""What a planner or selector sees at the start of an interval, and the plan it answers with.

Nothing here knows the future: works are expectations, remaining works follow from observed CPU seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.selection.cloud.hosts import Fleet
from tiphys_models.selection.cloud.outlook import finish_times
from tiphys_models.selection.cloud.tasks import Application, Tasks

UNPLACED = -1
HISTORY = 100
"""Intervals of host utilisation that forecasters may look back."""


@dataclass(frozen=True, slots=True)
class Running:
    """Tasks that have a host and have not ended."""

    tasks: Tasks
    host: IntArray
    used_core_s: FloatArray
    """CPU seconds observed so far."""
    remaining_core_s: FloatArray
    """Expected from the application and `used_core_s`; a forecaster may replace it (`CloudState.with_forecast`)."""

    def __len__(self) -> int:
        return len(self.host)


@dataclass(frozen=True, slots=True)
class CloudState:
    """A measured cloud at the start of an interval. Live, it is made from nodes, pods and cAdvisor; here, by the simulator."""

    time_s: float
    interval_s: float
    fleet: Fleet
    applications: tuple[Application, ...]
    running: Running
    awake: BoolArray
    """Hosts that are on: with work, or lingering. Sleeping ones cost nothing and take `resume_s` to wake."""
    resume_s: float
    utilisation: FloatArray
    """Share of each host's cores used in the last interval."""
    history: FloatArray
    """The last (at most `HISTORY`) intervals' utilisation, oldest first: intervals x hosts."""
    previous_application: IntArray
    previous_host: IntArray
    """The previous plan: which application went where."""

    def free_ram_mib(self) -> FloatArray:
        """Per host, what running tasks leave."""
        return self.fleet.column("ram_mib") - self._sum(self.running.tasks.ram_mib)

    def free_disk_mib(self) -> FloatArray:
        """Per host, what running tasks leave."""
        return self.fleet.column("disk_mib") - self._sum(self.running.tasks.disk_mib)

    def running_count(self) -> IntArray:
        """Number of running tasks on each host."""
        return np.bincount(self.running.host, minlength=len(self.fleet)).astype(np.int64)

    def _sum(self, per_task: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self.running.host, weights=per_task, minlength=len(self.fleet)), np.float64)

    def expected_utilisation(self) -> FloatArray:
        """Share of each host's cores that its present tasks are expected to use in the coming interval."""
        running, cores = self.running, self.fleet.column("cores")
        share = np.zeros(len(self.fleet))
        for host in np.unique(running.host).tolist():
            _, busy = finish_times(cores[host], running.remaining_core_s[running.host == host].tolist(), self.interval_s)
            share[host] = busy[0] / (cores[host] * self.interval_s) if busy else 0.0
        return share

    def with_forecast(self, utilisation: FloatArray) -> CloudState:
        """The same with remaining works rescaled to a forecast of the coming interval's utilisation per host.

        A forecast says how much CPU a host's present tasks will use; which hosts have tasks at all is known better from the
        list of tasks than from any forecast of last interval's CPU, so hosts without tasks stay empty.
        """
        expected = self._sum(self.running.remaining_core_s)
        capacity = self.fleet.column("cores") * self.interval_s
        # What runs beyond the interval is out of a forecast's sight: it moves only the part that the interval would show.
        moved = (np.clip(utilisation, 0.0, 1.0) - self.expected_utilisation()) * capacity
        factor = np.where(expected > 0, (expected + moved) / np.maximum(expected, 1e-9), 1.0)
        remaining = self.running.remaining_core_s * np.maximum(factor, 0.05)[self.running.host]
        return replace(self, running=replace(self.running, remaining_core_s=remaining))

    def digest(self, tasks: Tasks, *, past: bool = True) -> int:
        """63 bits that are equal exactly for equal states and tasks: the seed of planners, the key of kept plans.

        Without the `past`, equal also for states that differ only in how busy hosts were: forecasters alone look at that.
        """
        made = blake2b(digest_size=8)
        made.update(np.array([self.time_s, self.interval_s, self.resume_s]).tobytes())
        for column in (
            self.fleet.type_of, self.fleet.pool, *_columns(tasks), *_columns(self.running.tasks), self.running.host,
            self.running.used_core_s, self.running.remaining_core_s, self.awake, self.previous_application, self.previous_host,
            *((self.utilisation, self.history) if past else ()),
        ):  # fmt: skip
            made.update(np.ascontiguousarray(column).tobytes() + b"|")
        return int.from_bytes(made.digest(), "little") >> 1


def _columns(tasks: Tasks) -> tuple[FloatArray | IntArray | HashArray, ...]:
    return tuple(getattr(tasks, f.name) for f in fields(tasks))


@dataclass(frozen=True, slots=True)
class Plan:
    """A host for every waiting task, in the tasks' order; UNPLACED waits for the next interval."""

    host: IntArray

    def __len__(self) -> int:
        return len(self.host)
