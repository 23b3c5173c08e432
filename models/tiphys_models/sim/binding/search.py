"""What is found by playing training episodes, without gradients: the score's weights, a table by application, a blind schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations

import numpy as np

from tiphys_models.binding.kernels import SCORE
from tiphys_models.binding.learned import WEIGHTS
from tiphys_models.features.arrays import FloatArray
from tiphys_models.sim.binding.choosers import Alternating, table_action
from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Action, Chooser, Fixed, mean_success, play
from tiphys_models.sim.binding.kernel import Streams
from tiphys_models.sim.binding.scenario import DEFAULT_SCENARIO, Scenario
from tiphys_models.sim.binding.topology import make_topology
from tiphys_models.sim.binding.workloads import APPLICATIONS, make_streams

Tell = Callable[[str], None]
START = (2.0, 0.5, 2.0, 1.0, 0.5, 1.0, 1.0)
SPREAD = (1.0, 0.5, 1.0, 1.0, 0.5, 1.0, 1.0)


@lru_cache(maxsize=64)
def _streams(split: str, seed: int, rate: float) -> Streams:
    return make_streams(split, seed, rate)


@dataclass(frozen=True, slots=True)
class Course:
    """Episodes of one split: every topology at every rate, with these seeds."""

    topologies: tuple[str, ...] = ("full-edge",)
    lambdas: tuple[float, ...] = (60.0,)
    split: str = "train"
    scenario: Scenario = field(default=DEFAULT_SCENARIO)

    def success(self, make: Callable[[], Chooser], seeds: Sequence[int]) -> float:
        """Mean over all of them; a chooser of its own for each."""
        return mean_success(
            [
                play(make_topology(t).world, _streams(self.split, seed, rate), make(), self.scenario)
                for t in self.topologies
                for rate in self.lambdas
                for seed in seeds
            ]
        )

    def fixed(self, action: Action, seeds: Sequence[int]) -> float:
        """Of one action throughout."""
        return self.success(lambda: Fixed(action), seeds)


@dataclass(frozen=True, slots=True)
class Effort:
    """Of the cross-entropy method."""

    rounds: int = 15
    samples: int = 32
    elite: int = 8
    episodes: int = 2
    """Of every topology and rate, new ones in each round."""


def fit_score(course: Course, rng: np.random.Generator, effort: Effort, tell: Tell) -> FloatArray:
    """Cross-entropy: draw weights, keep the best quarter's mean and spread, again."""
    mean, spread = np.tile(START, (WEIGHTS[0], 1)), np.tile(SPREAD, (WEIGHTS[0], 1))
    for turn in range(effort.rounds):
        seeds = [int(s) for s in rng.integers(0, 2**31, effort.episodes)]
        drawn = mean + spread * rng.standard_normal((effort.samples, *WEIGHTS))
        found = np.array([course.fixed(Action.score(w), seeds) for w in drawn])
        best = drawn[np.argsort(-found)[: effort.elite]]
        mean, spread = best.mean(axis=0), 0.7 * best.std(axis=0) + 0.3 * spread
        top = 100 * np.sort(found)[-effort.elite :].mean()
        tell(f"  round {turn + 1}: success {100 * found.mean():.2f} % of all, {top:.2f} % of the best")
    return np.asarray(mean)


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
