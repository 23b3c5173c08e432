"""What forecasters learn from: moments of simulated episodes, with the CPU that running tasks really used next.

Only arrays leave this module: nothing of what the simulator alone knows reaches a network's inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.score import Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.heuristics import CostLean, EnergyLean, FirstFit, OnePerHost, RandomHost
from tiphys_models.selection.planners.search import OBJECTIVE
from tiphys_models.selection.planners.seen import CHANNELS, FACTS, WINDOW, HostRows, believe, look
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.episode import IntervalMoment, Planners, run
from tiphys_models.selection.sim.workloads import WORKLOADS, make_workload

GRID = np.array([0.0, 0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0])
"""Utilisations at which costs of choices are tabulated; between them they are interpolated."""
CHOICES = 16
"""Places of one task, at most; a fresh host of each type among them."""


@dataclass(frozen=True, slots=True)
class ForecastLesson:
    """One moment: its busy hosts, and what would be used of them if nothing were added."""

    seen: HostRows
    used: FloatArray
    choices: tuple[Choices, ...]


@dataclass(frozen=True, slots=True)
class Choices:
    """One waiting task: what each place costs it, by the forecast of that place, in units of its reference."""

    row: FloatArray
    """Which row of `seen` a place is; -1 for a fresh host, whose cost no forecast changes."""
    cost: FloatArray
    """Cost of the task at each place by forecast, places x GRID."""
    truth: FloatArray
    """Places: at the utilisation that came."""


@dataclass(slots=True)
class _Watching:
    """A chooser that changes its behaviour every so often, so that states of all behaviours and their mixtures occur."""

    rng: np.random.Generator
    tasks: int
    lessons: list[ForecastLesson] = field(default_factory=list)
    present: str = ""

    def choose(self, moment: IntervalMoment) -> str:
        """Name of the candidate that plans this interval; implements `CandidateChooser.choose`."""
        if not self.present or self.rng.random() < 0.1:
            self.present = str(self.rng.choice(moment.planners.names))
        if len(moment.state.running):
            self.lessons.append(_lesson(moment, self.rng, self.tasks))
        return self.present

    def settled(self, interval: int, outcome: Outcome) -> None:
        """Outcomes are ignored: this chooser learns nothing."""


def collect(split: str, seeds: Sequence[int], intervals: int, rng: np.random.Generator, tasks: int = 1) -> list[ForecastLesson]:
    """Lessons of both workloads; `tasks` waiting ones of each moment come with their choices."""
    watching = _Watching(rng, tasks)
    behaviours = {p.name: p for p in (RandomHost(), OnePerHost(), CostLean(), EnergyLean(), FirstFit())}
    for seed in seeds:
        for name in WORKLOADS:
            run(make_workload(name, split, seed, intervals), Planners(behaviours), watching)
    return watching.lessons


def next_utilisation(cloud: Cloud) -> FloatArray:
    """Utilisation of every host in the next interval, if nothing that waits were placed."""
    ahead = cloud.clone()
    ahead.waiting = ahead.waiting[:0]
    ahead.advance()
    return ahead.state().utilisation


def _lesson(moment: IntervalMoment, rng: np.random.Generator, tasks: int) -> ForecastLesson:
    seen = look(moment.state)
    used = next_utilisation(moment.cloud)[seen.host]
    picked = rng.permutation(len(moment.tasks))[:tasks]
    choices = tuple(_choices(moment.state, moment.tasks.take(np.array([t])), seen, used, OBJECTIVE) for t in picked.tolist())
    return ForecastLesson(seen, used, choices)


def _choices(state: CloudState, task: Tasks, seen: HostRows, used: FloatArray, weights: Weights) -> Choices:
    row_of = {host: row for row, host in enumerate(seen.host.tolist())}
    hosts = Draft(state, task, weights).candidates(0)
    hosts = sorted(hosts, key=lambda h: h in row_of)[:CHOICES]  # fresh ones first: they always stay
    beliefs = [np.full(len(seen.host), level) for level in GRID] + [used]
    costs = []
    for utilisation in beliefs:
        draft = Draft(believe(state, seen, utilisation), task, weights)
        costs.append([draft.delta(0, host) for host in hosts])
    table = np.array(costs).T
    return Choices(np.array([row_of.get(h, -1) for h in hosts]), table[:, :-1], table[:, -1])


@dataclass(frozen=True, slots=True)
class Batch:
    """Lessons side by side, padded to the busiest."""

    series: FloatArray
    facts: FloatArray
    there: BoolArray
    used: FloatArray
    row: FloatArray
    """Lessons x tasks x CHOICES; -1 fresh."""
    open: BoolArray
    """Lessons x tasks x CHOICES: places there are."""
    cost: FloatArray
    truth: FloatArray


def batch(lessons: Sequence[ForecastLesson]) -> Batch:
    """A batch of any number of lessons, padded to the largest."""
    hosts = max(len(lesson.used) for lesson in lessons)
    tasks = max(1, *(len(lesson.choices) for lesson in lessons))
    n = len(lessons)
    made = Batch(
        np.zeros((n, hosts, WINDOW, CHANNELS), np.float32), np.zeros((n, hosts, FACTS), np.float32), np.zeros((n, hosts), np.bool_),
        np.zeros((n, hosts), np.float32), np.full((n, tasks, CHOICES), -1, np.int64), np.zeros((n, tasks, CHOICES), np.bool_),
        np.zeros((n, tasks, CHOICES, len(GRID)), np.float32), np.zeros((n, tasks, CHOICES), np.float32),
    )  # fmt: skip
    for i, lesson in enumerate(lessons):
        busy = len(lesson.used)
        made.series[i, :busy], made.facts[i, :busy] = lesson.seen.series, lesson.seen.facts
        made.there[i, :busy], made.used[i, :busy] = True, lesson.used
        for j, choices in enumerate(lesson.choices):
            places = len(choices.row)
            made.row[i, j, :places], made.open[i, j, :places] = choices.row, True
            made.cost[i, j, :places], made.truth[i, j, :places] = choices.cost, choices.truth
    return made
