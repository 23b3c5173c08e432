"""Ant colony on classes of hosts: pheromone lies on (kind of task, filling), so that what one ant learns of a host holds for all like it.

Published colonies walk over single hosts and lose to first-fit from four tasks on: a hundred nearly identical hosts dilute every trail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from tiphys_models.selection.cloud.state import UNPLACED
from tiphys_models.selection.planners.fillings import Filling, Fillings, FillingStep, Layout
from tiphys_models.selection.planners.moves import improve
from tiphys_models.selection.planners.search import STARTS

ANTS = 5
ROUNDS = 50
PATIENCE = 10
"""Rounds without progress after which the search ends."""
EVAPORATION = 0.1
_WORK = 80
"""Tasks placed by one ant without progress: large batches get fewer rounds, since each has already tried more."""
_EPSILON = 0.02
"""Addition to costs, as a share of one task's reference: it makes the attraction of free places finite."""

Trail = list[tuple[int, Filling]]


class Pheromone:
    """Starts at 1 everywhere. Evaporation is kept as one factor: choices see only proportions."""

    def __init__(self) -> None:
        self._scale = 1.0
        self._added: dict[tuple[int, Filling], float] = {}

    def level(self, kind: int, filling: Filling) -> float:
        """Pheromone of a kind on a filling, in units of an untouched one."""
        return 1.0 + self._added.get((kind, filling), 0.0)

    def deposit(self, trail: Trail, amount: float) -> None:
        """A plan's places gain."""
        for step in trail:
            self._added[step] = self._added.get(step, 0.0) + amount / self._scale

    def evaporate(self) -> None:
        """Everything, by the same share."""
        self._scale *= 1.0 - EVAPORATION


def colony(fillings: Fillings, seeds: Iterable[Layout], seed: int) -> Layout:
    """The best layout found: never worse than any of the seeds."""
    starts = sorted(seeds, key=lambda layout: layout.value)[:STARTS]
    for start in starts:
        improve(start)
    best = min(starts, key=lambda layout: layout.value)
    tasks = len(fillings.tasks)
    if tasks < 2:
        return best  # every place of a single task has been tried
    rng, pheromone = np.random.default_rng(seed), Pheromone()
    best_trail = _trail(best)
    pheromone.deposit(best_trail, _amount(best))
    patience, still = max(2, min(PATIENCE, _WORK // tasks)), 0
    for _ in range(ROUNDS):
        first = min((_walk(fillings, pheromone, draws) for draws in rng.random((ANTS, tasks)).tolist()), key=lambda ant: ant.value)
        improve(first)
        trail = _trail(first)
        pheromone.evaporate()
        pheromone.deposit(trail, _amount(first))
        still += 1
        if first.value < best.value - 1e-9:
            best, best_trail, still = first, trail, 0
        pheromone.deposit(best_trail, _amount(best))
        if still >= patience:
            break
    return best


def _amount(layout: Layout) -> float:
    return 1.0 / (_EPSILON + max(layout.value, 0.0))


def _walk(fillings: Fillings, pheromone: Pheromone, draws: list[float]) -> Layout:
    layout = Layout(fillings)
    epsilon = _EPSILON / len(fillings.tasks)
    for task, draw in zip(fillings.order, draws, strict=True):
        kind = fillings.kind_of[task]
        options: list[tuple[Filling, FillingStep]] = []
        for filling in layout.groups:
            step = fillings.grow(filling, kind)
            if step is not None:
                options.append((filling, step))
        if options:
            # eta^2, as Dorigo and Gambardella have it: twice as dear is four times as rare
            sums = list(accumulate(pheromone.level(kind, f) / (epsilon + max(s.delta, 0.0)) ** 2 for f, s in options))
            layout.put(task, *options[bisect_left(sums, draw * sums[-1])])
    return layout


def _trail(layout: Layout) -> Trail:
    """The places an ant would have gone through."""
    fillings = layout.fillings
    again, trail = Layout(fillings), []
    for task in fillings.order:
        host = layout.host[task]
        if host == UNPLACED:
            continue
        before = again.filling_of.get(host) or next(f for f, hosts in again.groups.items() if host in hosts)
        step = fillings.grow(before, fillings.kind_of[task])
        if step is not None:
            trail.append((fillings.kind_of[task], before))
            again.put(task, before, step, host)
    return trail
