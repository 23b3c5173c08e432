"""Single-task moves on an objective E, with kicks: what finishes every plan that a model proposes, and all of a forecaster's search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

_LEFT_OUT = 10.0
"""E of a task without any room; so much that no plan leaves one out to look cheap."""


def polish(state: CloudState, tasks: Tasks, start: Plan, weights: Weights, rounds: int = 3) -> tuple[Plan, float]:
    """(plan, E relative to nothing placed) after passes of best moves, until none helps."""
    climb = _Climb(state, tasks, start, weights)
    climb.passes(rounds)
    return climb.draft.plan(), climb.value


def best_of(state: CloudState, tasks: Tasks, starts: Sequence[Plan], weights: Weights) -> Plan:
    """The start with the lowest E after polishing; earlier ones win ties."""
    return min((polish(state, tasks, start, weights) for start in distinct(starts)), key=lambda found: found[1])[0]


def search(
    state: CloudState, tasks: Tasks, starts: Sequence[Plan], weights: Weights, rng: np.random.Generator, random_share: float, kicks: int
) -> Plan:
    """Iterated local search from the best start.

    Each of `kicks` times a share of the tasks (at least one) moves to random hosts, the plan is improved, and kept if it is better. The
    published search stops with probability 0.4 a round, which leaves it near a random plan; and random neighbours taken one by one are
    undone by the next best move. Kicks keep the published share of randomness and never lose what was found.
    """
    best, value = min((polish(state, tasks, start, weights) for start in distinct(starts)), key=lambda found: found[1])
    placed = np.flatnonzero(best.host != UNPLACED)
    for _ in range(kicks if len(placed) else 0):
        climb = _Climb(state, tasks, best, weights)
        for task in rng.choice(placed, max(1, round(random_share * len(placed))), replace=False).tolist():
            climb.scatter(task, rng)
        climb.passes(2)
        if climb.value < value - 1e-12:
            best, value = climb.draft.plan(), climb.value
    return best


def distinct(starts: Sequence[Plan]) -> list[Plan]:
    """Each plan once, in order."""
    return list({tuple(plan.host.tolist()): plan for plan in reversed(starts)}.values())[::-1]


class _Climb:
    """A draft and its E. Tasks that a start leaves out or puts where there is no room are placed greedily if they fit anywhere."""

    def __init__(self, state: CloudState, tasks: Tasks, start: Plan, weights: Weights) -> None:
        self.draft, self.value = Draft(state, tasks, weights), 0.0
        self._order = sorted(range(len(tasks)), key=lambda t: (-float(tasks.work_core_s[t]), t))
        host: IntArray = start.host
        for task in self._order:
            wanted = int(host[task])
            if wanted != UNPLACED and self.draft.fits(task, wanted):
                self._place(task, wanted)
            else:
                self.put(task)

    def _place(self, task: int, host: int) -> None:
        self.value += self.draft.delta(task, host)
        self.draft.place(task, host)

    def _take(self, task: int) -> int:
        host = int(self.draft.host[task])
        self.draft.take_back(task)
        self.value -= self.draft.delta(task, host)
        return host

    def put(self, task: int) -> None:
        """Where it adds least; nowhere if no host has room."""
        hosts = self.draft.candidates(task)
        if hosts:
            self._place(task, hosts[int(np.argmin([self.draft.delta(task, h) for h in hosts]))])
        else:
            self.value += _LEFT_OUT

    def scatter(self, task: int, rng: np.random.Generator) -> None:
        """Move a task to a random host with room."""
        back = self._take(task)
        hosts = self.draft.candidates(task)
        self._place(task, hosts[int(rng.integers(len(hosts)))] if hosts else back)

    def passes(self, rounds: int) -> None:
        """Best move of every placed task in turn, largest first."""
        for _ in range(rounds):
            moved = False
            for task in self._order:
                if self.draft.host[task] == UNPLACED:
                    continue
                before = self._take(task)
                self.put(task)
                moved |= int(self.draft.host[task]) != before
            if not moved:
                return
