"""The score's weights: those that serve most beside relative load, and reject hardly more than it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.streams.sim.search import Course, Tell
from tiphys_models.streams.train.evolution import Evolution

START = (0.28, -0.28, 0.59, 0.34, 0.63, 0.24, 0.43, 0.46, 0.58, 3.45, 0.51, 0.83, 0.63, 0.38, 0.05, 0.54, -0.28, 0.29, 1.75, 4.82)
SPREAD = (0.1, 0.2, 0.2, 0.1, 0.2, 0.1, 0.1, 0.1, 0.2, 0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.1, 0.4, 0.5)
"""START and SPREAD are in the order of `learned.TERMS`; about where earlier searches on training episodes ended."""
RIVAL = STATIC_ACTIONS[-1]
"""Relative load: the best static policy almost everywhere."""
REJECTS_ALLOWED, REJECTS_PRICE = 0.0035, 3.0
"""A policy that declines could buy success with rejects; beyond a third of a point over the rival's each costs three times as much."""
_KEPT = 0.3
"""Share of the rounds whose means are averaged: the last ones wander around the best weights, not onto them."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Effort of the search: its rounds and samples."""

    rounds: int = 50
    samples: int = 16
    episodes: int = 4
    """Episodes of every course, drawn anew for each round."""
    pool: int = 200
    """Episodes of every course that they are drawn from."""


def fit_score(courses: Sequence[Course], rng: np.random.Generator, effort: Effort, tell: Tell) -> FloatArray:
    """Weights by evolution, on ticks of two seconds; every sample of a round meets the same streams."""
    courses = [replace(course, scenario=replace(DEFAULT_SCENARIO, tick_s=2.0)) for course in courses]
    search = Evolution(np.array(START), np.array(SPREAD), effort.samples, rng)
    means: list[FloatArray] = []
    for turn in range(effort.rounds):
        seeds = [int(s) for s in rng.choice(effort.pool, effort.episodes, replace=False)]
        rival = [course.shares(RIVAL, seeds) for course in courses]
        drawn = search.ask()
        good = np.array([np.mean([gain(c.shares(Action.score(w), seeds), r) for c, r in zip(courses, rival, strict=True)]) for w in drawn])
        search.tell(good)
        means.append(search.mean)
        if turn % 10 == 0:
            tell(f"  round {turn}: over {RIVAL.name} {100 * good.mean():+.2f} points, the best {100 * good.max():+.2f}")
    return np.asarray(np.mean(means[-max(int(_KEPT * len(means)), 1) :], axis=0))


def gain(mine: FloatArray, rival: FloatArray) -> float:
    """Success over the rival's, less what rejects beyond the rival's cost."""
    return float(mine[0] - rival[0] - REJECTS_PRICE * max(mine[1] - rival[1] - REJECTS_ALLOWED, 0.0))
