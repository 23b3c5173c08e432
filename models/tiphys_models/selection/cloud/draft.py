"""A plan under construction: what every choice would add to a planner's objective E, host by host.

E = sum over hosts of [weighted outlook with the new tasks - without them] / reference. The reference is every waiting task alone
on a fresh host of the cheapest type: dividing by the whole fleet instead would make one small host worth almost nothing.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.outlook import expected_outcome
from tiphys_models.selection.cloud.score import Outcome, Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

_KEPT_MAX = 20_000
"""Outlooks that a draft remembers: each names all tasks of its host, and a search asks for hundreds of thousands."""


class Draft:
    """Mutable book-keeping of one call of a planner; `place` and `take_back` keep it exact."""

    def __init__(self, state: CloudState, tasks: Tasks, weights: Weights, start_s: float = 0.0) -> None:
        self.state, self.tasks, self._weights, self._start_s = state, tasks, weights, start_s
        self.host: IntArray = np.full(len(tasks), UNPLACED, np.int64)
        fleet = state.fleet
        self._kind = [fleet.types[t] for t in fleet.type_of]
        self._free_ram, self._free_disk = state.free_ram_mib(), state.free_disk_mib()
        self._mine: dict[int, list[tuple[float, float, float]]] = {}
        running = state.running
        columns = (running.remaining_core_s, running.tasks.age_s, running.tasks.deadline_s)
        for host, *mine in zip(running.host.tolist(), *(column.tolist() for column in columns), strict=True):
            self._mine.setdefault(host, []).append((mine[0], mine[1], mine[2]))
        self._new = list(zip(tasks.work_core_s.tolist(), tasks.age_s.tolist(), tasks.deadline_s.tolist(), strict=True))
        self.reference = self._reference()
        self._worth: dict[int, float] = {host: self.worth(self._outlook(host, mine)) for host, mine in self._mine.items()}
        self._kept: dict[tuple[int, bool, tuple[tuple[float, float, float], ...]], float] = {}
        self._spare = self._spare_hosts()

    def _reference(self) -> Outcome:
        fleet = self.state.fleet
        cheapest = min({fleet.types[t] for t in np.unique(fleet.type_of)}, key=lambda kind: kind.usd_per_hour)
        total = Outcome()
        for work, age, deadline in self._new:
            total = total + expected_outcome(cheapest, [work], [age], [deadline], self.state.interval_s, self._start_s)
        return total

    def _outlook(self, host: int, mine: list[tuple[float, float, float]]) -> Outcome:
        works, ages, deadlines = zip(*mine, strict=True)
        start_s = self._start_s if self.state.awake[host] else self._start_s + self.state.resume_s
        return expected_outcome(self._kind[host], works, ages, deadlines, self.state.interval_s, start_s)

    def worth(self, outcome: Outcome) -> float:
        """An outcome in units of the reference."""
        w, ref = self._weights, self.reference
        return (
            w.cost * outcome.usd / max(ref.usd, 1e-12)
            + w.energy * outcome.joules / max(ref.joules, 1e-12)
            + w.response * outcome.response_s / max(ref.response_s, 1e-12)
            + w.violation * outcome.violations / max(ref.tasks, 1.0)
        )

    def _spare_hosts(self) -> dict[tuple[int, int], list[int]]:
        """Hosts without tasks, by (type, pool): interchangeable, so that only the first of each kind need be tried."""
        fleet = self.state.fleet
        spare: dict[tuple[int, int], list[int]] = {}
        taken = set(self._mine)
        order = np.lexsort((np.arange(len(fleet)), ~self.state.awake))  # awake ones first: they need no resuming
        for host in order.tolist():
            if host not in taken:
                spare.setdefault((int(fleet.type_of[host]), int(fleet.pool[host])), []).append(host)
        return spare

    def candidates(self, task: int) -> list[int]:
        """Hosts worth trying for a task: every host in use that has room, and one fresh host of each type and pool."""
        hosts = [*self._mine, *(spare[0] for spare in self._spare.values() if spare)]
        return [host for host in hosts if self.fits(task, host)]

    def fits(self, task: int, host: int) -> bool:
        """RAM, disk and pool; CPU is shared, so it never forbids."""
        tasks = self.tasks
        return bool(
            tasks.ram_mib[task] <= self._free_ram[host]
            and tasks.disk_mib[task] <= self._free_disk[host]
            and (int(tasks.pools[task]) >> int(self.state.fleet.pool[host])) & 1
        )

    def delta(self, task: int, host: int) -> float:
        """What E grows by if the task goes there."""
        mine = self._mine.get(host, [])
        return self._worth_of(host, [*mine, self._new[task]]) - self._worth.get(host, 0.0)

    def _worth_of(self, host: int, mine: list[tuple[float, float, float]]) -> float:
        key = (int(self.state.fleet.type_of[host]), bool(self.state.awake[host]), tuple(mine))
        if key not in self._kept:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[key] = self.worth(self._outlook(host, mine))
        return self._kept[key]

    def place(self, task: int, host: int) -> None:
        """Put an unplaced task on a host with room."""
        if host not in self._mine:
            fleet = self.state.fleet
            self._spare[int(fleet.type_of[host]), int(fleet.pool[host])].remove(host)
        mine = self._mine.setdefault(host, [])
        mine.append(self._new[task])
        self._worth[host] = self._worth_of(host, mine)
        self._free_ram[host] -= self.tasks.ram_mib[task]
        self._free_disk[host] -= self.tasks.disk_mib[task]
        self.host[task] = host

    def take_back(self, task: int) -> None:
        """Undo `place` for one task."""
        host = int(self.host[task])
        mine = self._mine[host]
        mine.remove(self._new[task])
        self._free_ram[host] += self.tasks.ram_mib[task]
        self._free_disk[host] += self.tasks.disk_mib[task]
        self.host[task] = UNPLACED
        if mine:
            self._worth[host] = self._worth_of(host, mine)
        else:
            del self._mine[host], self._worth[host]
            fleet = self.state.fleet
            self._spare[int(fleet.type_of[host]), int(fleet.pool[host])].insert(0, host)

    def plan(self) -> Plan:
        """What has been decided so far."""
        return Plan(self.host.copy())


def objective(state: CloudState, tasks: Tasks, plan: Plan, weights: Weights, scheduling_s: float = 0.0) -> float:
    """E of a whole plan; an unplaced task costs what it costs alone on the cheapest host, one interval later, and a violation more."""
    draft = Draft(state, tasks, weights, scheduling_s)
    total = draft.worth(Outcome(usd=serverless_usd(scheduling_s)))
    for task, host in enumerate(plan.host.tolist()):
        if host == UNPLACED:
            total += draft.worth(_postponed(draft, task))
        else:
            total += draft.delta(task, host)
            draft.place(task, host)
    return total


def _postponed(draft: Draft, task: int) -> Outcome:
    ref, n = draft.reference, max(len(draft.tasks), 1)
    alone = Outcome(ref.usd / n, ref.joules / n, ref.response_s / n, ref.violations / n, 1.0)
    return alone + Outcome(response_s=draft.state.interval_s, violations=1.0)
