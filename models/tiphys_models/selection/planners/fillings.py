"""A planner's search space without duplicates: hosts that are alike are one class, tasks that are alike are one kind.

A hundred hosts are about ten classes (type, pool, awake, what runs there). A *filling* is a class with some waiting tasks added; what
it is worth in E and what one more task makes of it is computed once, however often a search comes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.outlook import expected_outcome
from tiphys_models.selection.cloud.score import Outcome, Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

Load = tuple[float, float, float]
"""Work, age and deadline of a task."""


@dataclass(frozen=True, slots=True, eq=False)
class HostClass:
    """Interchangeable hosts; compared by identity, since each class is made once."""

    type: int
    pool: int
    awake: bool
    running: tuple[Load, ...]
    ram_mib: float
    disk_mib: float


@dataclass(frozen=True, slots=True)
class TaskKind:
    """A class of interchangeable waiting tasks."""

    load: Load
    ram_mib: float
    disk_mib: float
    pools: int


@dataclass(eq=False, slots=True)
class Filling:
    """A host class with waiting tasks added; compared by identity, since each is made once."""

    host_class: HostClass
    kinds: tuple[int, ...]
    ram_mib: float
    disk_mib: float
    worth: float
    """What the added tasks add to E."""
    grown: dict[int, FillingStep | None] = field(default_factory=dict)
    shrunk: dict[int, Filling] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FillingStep:
    """One more task on a host."""

    delta: float
    filling: Filling


Groups = dict[Filling, list[int]]
"""Which hosts have which filling; never an empty list. Hosts are taken from a list's end."""


class Fillings:
    """Read-only for searches; `weights` are those of the planner's own objective."""

    def __init__(self, state: CloudState, tasks: Tasks, weights: Weights) -> None:
        self.state, self.tasks = state, tasks
        self._draft = Draft(state, tasks, weights)
        self._made: dict[tuple[HostClass, tuple[int, ...]], Filling] = {}
        self._base: dict[HostClass, float] = {}
        self.kinds, self.kind_of = _kinds(tasks)
        self.order = sorted(range(len(tasks)), key=lambda t: (-self.kinds[self.kind_of[t]].load[0], self.kind_of[t], t))
        """Order in which tasks are placed, largest first."""
        ref, n = self._draft.reference, max(len(tasks), 1)
        alone = Outcome(ref.usd / n, ref.joules / n, ref.response_s / n, ref.violations / n, 1.0)
        self.postponed = self._draft.worth(alone + Outcome(response_s=state.interval_s, violations=1.0))
        """What leaving a task waiting adds to E."""
        self._start = self._classes()

    def groups(self) -> Groups:
        """All hosts without any waiting task."""
        return {filling: list(hosts) for filling, hosts in self._start.items()}

    def _classes(self) -> Groups:
        state, fleet, running = self.state, self.state.fleet, self.state.running
        ram, disk = state.free_ram_mib().tolist(), state.free_disk_mib().tolist()
        loads: list[list[Load]] = [[] for _ in range(len(fleet))]
        columns = (running.host, running.remaining_core_s, running.tasks.age_s, running.tasks.deadline_s)
        for host, work, age, deadline in zip(*(c.tolist() for c in columns), strict=True):
            loads[host].append((work, age, deadline))
        groups: Groups = {}
        known: dict[tuple[object, ...], Filling] = {}
        place = zip(fleet.type_of.tolist(), fleet.pool.tolist(), state.awake.tolist(), strict=True)
        for host, (kind, pool, awake) in enumerate(place):
            like = (kind, pool, awake, tuple(sorted(loads[host])), ram[host], disk[host])
            if like not in known:
                known[like] = self._filling(HostClass(*like), (), ram[host], disk[host])
            groups.setdefault(known[like], []).append(host)
        for hosts in groups.values():
            hosts.reverse()  # the first host is taken first
        return groups

    def _filling(self, host_class: HostClass, kinds: tuple[int, ...], ram_mib: float, disk_mib: float) -> Filling:
        key = (host_class, kinds)
        if key not in self._made:
            worth = self._total(host_class, kinds) - self._total(host_class, ()) if kinds else 0.0
            self._made[key] = Filling(host_class, kinds, ram_mib, disk_mib, worth)
        return self._made[key]

    def _total(self, host_class: HostClass, kinds: tuple[int, ...]) -> float:
        if not kinds and host_class in self._base:
            return self._base[host_class]
        loads = [*host_class.running, *(self.kinds[k].load for k in kinds)]
        total = 0.0
        if loads:
            works, ages, deadlines = zip(*loads, strict=True)
            start_s = 0.0 if host_class.awake else self.state.resume_s
            kind = self.state.fleet.types[host_class.type]
            total = self._draft.worth(expected_outcome(kind, works, ages, deadlines, self.state.interval_s, start_s))
        if not kinds:
            self._base[host_class] = total
        return total

    def grow(self, filling: Filling, kind: int) -> FillingStep | None:
        """One more task of a kind, or None without room."""
        if kind not in filling.grown:
            filling.grown[kind] = self._grow(filling, kind)
        return filling.grown[kind]

    def _grow(self, filling: Filling, kind: int) -> FillingStep | None:
        task, mine = self.kinds[kind], filling.host_class
        if task.ram_mib > filling.ram_mib or task.disk_mib > filling.disk_mib or not (task.pools >> mine.pool) & 1:
            return None
        kinds = tuple(sorted((*filling.kinds, kind)))
        more = self._filling(mine, kinds, filling.ram_mib - task.ram_mib, filling.disk_mib - task.disk_mib)
        return FillingStep(more.worth - filling.worth, more)

    def shrink(self, filling: Filling, kind: int) -> Filling:
        """One task of a kind less."""
        if kind not in filling.shrunk:
            at, task = filling.kinds.index(kind), self.kinds[kind]
            kinds = filling.kinds[:at] + filling.kinds[at + 1 :]
            filling.shrunk[kind] = self._filling(
                filling.host_class, kinds, filling.ram_mib + task.ram_mib, filling.disk_mib + task.disk_mib
            )
        return filling.shrunk[kind]

    def best(self, groups: Groups, kind: int) -> tuple[Filling, FillingStep] | None:
        """Where one more task adds least; the first of equals."""
        found: tuple[Filling, FillingStep] | None = None
        for filling in groups:
            step = self.grow(filling, kind)
            if step is not None and (found is None or step.delta < found[1].delta):
                found = filling, step
        return found


def _kinds(tasks: Tasks) -> tuple[list[TaskKind], list[int]]:
    known: dict[TaskKind, int] = {}
    columns = (tasks.work_core_s, tasks.age_s, tasks.deadline_s, tasks.ram_mib, tasks.disk_mib, tasks.pools)
    kind_of = [
        known.setdefault(TaskKind((work, age, deadline), ram, disk, pools), len(known))
        for work, age, deadline, ram, disk, pools in zip(*(c.tolist() for c in columns), strict=True)
    ]
    return list(known), kind_of


class Layout:
    """A plan that can be changed task by task; `value` is its E."""

    def __init__(self, fillings: Fillings) -> None:
        self.fillings = fillings
        self.groups = fillings.groups()
        self.filling_of: dict[int, Filling] = {}
        """Fillings of the hosts that were given tasks."""
        self.host = [UNPLACED] * len(fillings.tasks)
        self.value = fillings.postponed * len(fillings.tasks)

    @staticmethod
    def of(fillings: Fillings, hosts: Sequence[int]) -> Layout:
        """A plan's hosts; tasks that do not fit where it puts them, or that it leaves out, go where they add least."""
        layout = Layout(fillings)
        at_start = {host: filling for filling, group in layout.groups.items() for host in group}
        late = []
        for task in fillings.order:
            host = hosts[task]
            before = layout.filling_of.get(host, at_start.get(host))
            step = fillings.grow(before, fillings.kind_of[task]) if before is not None else None
            if before is not None and step is not None:
                layout.put(task, before, step, host)
            else:
                late.append(task)
        for task in late:
            layout.put_best(task)
        return layout

    def put(self, task: int, before: Filling, step: FillingStep, host: int | None = None) -> None:
        """An unplaced task onto a host of that filling: a given one, or the next."""
        group = self.groups[before]
        if host is None:
            host = group.pop()
        else:
            group.remove(host)
        if not group:
            del self.groups[before]
        self._join(host, step.filling)
        self.host[task] = host
        self.value += step.delta - self.fillings.postponed

    def put_best(self, task: int) -> bool:
        """An unplaced task where it adds least, if there is room."""
        found = self.fillings.best(self.groups, self.fillings.kind_of[task])
        if found is not None:
            self.put(task, *found)
        return found is not None

    def take(self, task: int) -> None:
        """Take a task off its host: the reverse of `put`."""
        host = self.host[task]
        before = self.filling_of[host]
        after = self.fillings.shrink(before, self.fillings.kind_of[task])
        group = self.groups[before]
        group.remove(host)
        if not group:
            del self.groups[before]
        self._join(host, after)
        self.host[task] = UNPLACED
        self.value += after.worth - before.worth + self.fillings.postponed

    def _join(self, host: int, filling: Filling) -> None:
        self.groups.setdefault(filling, []).append(host)
        self.filling_of[host] = filling

    def plan(self) -> Plan:
        """The layout as a plan."""
        return Plan(np.array(self.host, np.int64).reshape(len(self.host)))
