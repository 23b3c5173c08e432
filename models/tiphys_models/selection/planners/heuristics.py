"""Planners without a model: the corners between which every other plan lies, and the bar that learned ones have to clear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray
from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.hosts import THREADS
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.greedy import greedy

_TIE = 1e-3
"""Weight of the response among plans that cost (nearly) the same."""


@dataclass(frozen=True, slots=True)
class CostLean:
    """Greedy on the bill alone: packs cheap hosts."""

    name: str = "cost-lean"

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        return greedy(state, tasks, Weights(1.0, 0.0, _TIE, 0.0))


@dataclass(frozen=True, slots=True)
class EnergyLean:
    """Greedy on energy alone: few large hosts."""

    name: str = "energy-lean"

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        return greedy(state, tasks, Weights(0.0, 1.0, _TIE, 0.0))


@dataclass(frozen=True, slots=True)
class OnePerHost:
    """Every task on a host of its own, the cheapest that is empty; without an empty one, where it adds least response."""

    name: str = "one-per-host"

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        draft = Draft(state, tasks, Weights(0.0, 0.0, 1.0, 0.0))
        count, price = state.running_count(), state.fleet.column("usd_per_hour")
        for task in range(len(tasks)):
            hosts = draft.candidates(task)
            empty = [h for h in hosts if count[h] == 0]
            if empty:
                host = min(empty, key=lambda h: (price[h], h))
            elif hosts:
                host = hosts[int(np.argmin([draft.delta(task, h) for h in hosts]))]
            else:
                continue
            draft.place(task, host)
            count[host] += 1
        return draft.plan()


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first host, in the fleet's order, with room for RAM, disk and the task's threads; CPU is overbooked only when none has."""

    name: str = "first-fit"

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        room = _Room(state)
        threads = state.fleet.column("cores") - THREADS * state.running_count()
        for task in range(len(tasks)):
            fits = room.fits(tasks, task)
            with_cores = np.flatnonzero(fits & (threads >= THREADS))
            hosts = with_cores if len(with_cores) else np.flatnonzero(fits)
            host = int(hosts[0]) if len(hosts) else UNPLACED
            room.put(tasks, task, host)
            threads[host] -= THREADS if host != UNPLACED else 0.0
        return room.plan(tasks)


@dataclass(frozen=True, slots=True)
class RandomHost:
    """A random host with room."""

    name: str = "random-host"

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        rng, room = np.random.default_rng(seed), _Room(state)
        for task in range(len(tasks)):
            hosts = np.flatnonzero(room.fits(tasks, task))
            room.put(tasks, task, int(rng.choice(hosts)) if len(hosts) else UNPLACED)
        return room.plan(tasks)


class _Room:
    """Free RAM and disk of every host while a plan is made."""

    def __init__(self, state: CloudState) -> None:
        self._fleet, self._ram, self._disk = state.fleet, state.free_ram_mib(), state.free_disk_mib()
        self._host: list[int] = []

    def fits(self, tasks: Tasks, task: int) -> BoolArray:
        allowed = self._fleet.allowed(tasks.pools[task])
        return np.asarray((self._ram >= tasks.ram_mib[task]) & (self._disk >= tasks.disk_mib[task]) & allowed)

    def put(self, tasks: Tasks, task: int, host: int) -> None:
        self._host.append(host)
        if host != UNPLACED:
            self._ram[host] -= tasks.ram_mib[task]
            self._disk[host] -= tasks.disk_mib[task]

    def plan(self, tasks: Tasks) -> Plan:
        return Plan(np.array(self._host, np.int64).reshape(len(tasks)))
