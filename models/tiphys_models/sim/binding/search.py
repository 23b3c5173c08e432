"""What is found by playing training episodes: a table by application, a blind schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np

from tiphys_models.binding.kernels import SCORE, WEIGHTS
from tiphys_models.features.arrays import FloatArray
from tiphys_models.sim.binding.choosers import Alternating, table_action
from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Action, Chooser, Fixed, Records, mean_success, play
from tiphys_models.sim.binding.kernel import Streams
from tiphys_models.sim.binding.scenario import DEFAULT_SCENARIO, Scenario
from tiphys_models.sim.binding.topology import Topology, make_topology
from tiphys_models.sim.binding.workloads import APPLICATIONS, bursty_arrivals, make_streams

Tell = Callable[[str], None]


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
    scenario: Scenario = field(default=DEFAULT_SCENARIO)

    def episodes(self, seeds: Sequence[int]) -> Iterator[tuple[Topology, Streams]]:
        """What is played."""
        for topology in self.topologies:
            for rate in self.lambdas:
                for seed in seeds:
                    yield make_topology(topology), _streams(self.split, seed, rate, bursty=self.bursty)

    def play(self, make: Callable[[], Chooser], seeds: Sequence[int]) -> list[Records]:
        """All of them; a chooser of its own for each."""
        return [play(where.world, streams, make(), self.scenario) for where, streams in self.episodes(seeds)]

    def success(self, make: Callable[[], Chooser], seeds: Sequence[int]) -> float:
        """Mean over all of them."""
        return mean_success(self.play(make, seeds))

    def shares(self, action: Action, seeds: Sequence[int]) -> FloatArray:
        """Success, reject and failure of one action throughout, means over all of them."""
        return np.asarray(np.mean([r.outcome.shares() for r in self.play(lambda: Fixed(action), seeds)], axis=0))

    def fixed(self, action: Action, seeds: Sequence[int]) -> float:
        """Of one action throughout."""
        return self.success(lambda: Fixed(action), seeds)


def fit_table(course: Course, seeds: Sequence[int], rounds: int = 2, weights: FloatArray | None = None) -> tuple[int, ...]:
    """Coordinate ascent from the best single policy: one application's policy at a time. With weights, the score is one of the policies."""
    kinds = range(SCORE + (weights is not None))
    used = np.zeros(WEIGHTS) if weights is None else weights

    def value(table: Sequence[int]) -> float:
        return course.fixed(table_action(table, used), seeds)

    table, best = max(((([k] * len(APPLICATIONS)), value([k] * len(APPLICATIONS))) for k in kinds), key=lambda pair: pair[1])
    for _ in range(rounds):
        before = best
        for application in range(len(APPLICATIONS)):
            for kind in kinds:
                tried = [*table[:application], kind, *table[application + 1 :]]
                if tried != table and (found := value(tried)) > best:
                    table, best = tried, found
        if best == before:
            break
    return tuple(table)


def fit_alternation(course: Course, seeds: Sequence[int]) -> tuple[Action, Action]:
    """The best two static policies to take in turn."""
    return max(combinations(STATIC_ACTIONS, 2), key=lambda pair: course.success(lambda: Alternating(*pair), seeds))
