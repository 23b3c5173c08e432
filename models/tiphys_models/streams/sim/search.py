"""What is found by playing training episodes: a table by application, a blind schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import combinations, permutations

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.kernels import SCORE, WEIGHTS
from tiphys_models.streams.sim.choosers import Alternating, table_action
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action, ActionChooser, FixedAction, StreamRecords, mean_success, play
from tiphys_models.streams.sim.halving import best_by_halving
from tiphys_models.streams.sim.kernel import Streams
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO, StreamScenario
from tiphys_models.streams.sim.topology import Topology, make_topology
from tiphys_models.streams.sim.workloads import APPLICATIONS, bursty_arrivals, make_streams

Tell = Callable[[str], None]
MORE_TURNS = (2, 3)
"""Windows of a schedule's first policy, beside strict alternation."""


@lru_cache(maxsize=256)
def _streams(split: str, seed: int, rate: float, *, bursty: bool) -> Streams:
    return make_streams(split, seed, rate, bursty_arrivals(split, seed) if bursty else None)


@dataclass(frozen=True, slots=True)
class Course:
    """Episodes of one split: every topology at every rate, with these seeds."""

    topologies: tuple[str, ...] = ("full-edge",)
    lambdas: tuple[float, ...] = (60.0,)
    split: str = "train"
    bursty: bool = False
    """Arrivals: `workloads.bursty_arrivals` instead of Poisson."""
    scenario: StreamScenario = field(default=DEFAULT_SCENARIO)

    def episodes(self, seeds: Sequence[int]) -> Iterator[tuple[Topology, Streams]]:
        """Topologies and streams that are played."""
        for topology in self.topologies:
            for rate in self.lambdas:
                for seed in seeds:
                    yield make_topology(topology), _streams(self.split, seed, rate, bursty=self.bursty)

    def play(self, make: Callable[[], ActionChooser], seeds: Sequence[int]) -> list[StreamRecords]:
        """All of them; a chooser of its own for each."""
        return [play(where.world, streams, make(), self.scenario) for where, streams in self.episodes(seeds)]

    def success(self, make: Callable[[], ActionChooser], seeds: Sequence[int]) -> float:
        """Mean over all of them."""
        return mean_success(self.play(make, seeds))

    def shares(self, action: Action, seeds: Sequence[int]) -> FloatArray:
        """Success, reject and failure of one action throughout, means over all of them."""
        return np.asarray(np.mean([r.outcome.shares() for r in self.play(lambda: FixedAction(action), seeds)], axis=0))

    def fixed(self, action: Action, seeds: Sequence[int]) -> float:
        """Success of one action throughout."""
        return self.success(lambda: FixedAction(action), seeds)


def fit_table(course: Course, seeds: Sequence[int], rounds: int = 2, weights: FloatArray | None = None) -> tuple[int, ...]:
    """Coordinate ascent from the best single policy: one application's policy at a time. With weights, the score is one of the policies."""
    kinds = range(SCORE + (weights is not None))
    used = np.zeros(WEIGHTS) if weights is None else weights

    @cache
    def value(table: tuple[int, ...], seed: int) -> float:
        return course.fixed(table_action(table, used), (seed,))

    table, best = best_by_halving([(k,) * len(APPLICATIONS) for k in kinds], value, seeds)
    for _ in range(rounds):
        before = best
        for application, kind in enumerate(table):
            tried = [(*table[:application], k, *table[application + 1 :]) for k in kinds if k != kind]
            found, good = best_by_halving(tried, value, seeds)
            if good > best:
                table, best = found, good
        if best == before:
            break
    return table


def fit_schedule(course: Course, seeds: Sequence[int]) -> Alternating:
    """The best of all schedules of two static policies: in turn, or one of them for two or three windows to the other's one."""
    schedules = [
        *(Alternating(*pair) for pair in combinations(STATIC_ACTIONS, 2)),
        *(Alternating(*pair, turns) for turns in MORE_TURNS for pair in permutations(STATIC_ACTIONS, 2)),
    ]
    return best_by_halving(schedules, lambda schedule, seed: course.success(lambda: schedule, (seed,)), seeds)[0]
