"""How good a student is: the best choices it makes, on workloads it was not trained on.

Validation plays the best choices, never sampled ones: a network that looks fine while it is sampled can send everything to one
node once it takes the maximum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.placement.rules import Hashing
from tiphys_models.placement.sim.episode import simulate
from tiphys_models.placement.sim.metrics import fullest_share
from tiphys_models.placement.sim.scenario import AGES, LITTLE_MEMORY, MIXED, NO_REUSE, SIZES
from tiphys_models.placement.train.curriculum import VALIDATION_SEEDS, default_tasks
from tiphys_models.placement.train.rollouts import Student, Task, roll

TEST_SEEDS = range(20)
"""Seeds of the test split, those of `tiphys bench placement`."""


class Validation:
    """Percent of hashing over fixed tasks of the validation split: the mean of the groups' means, the default scenario counting half."""

    def __init__(self, *, varied: bool, seeds: int = VALIDATION_SEEDS) -> None:
        scenarios = (AGES[0], AGES[3], MIXED, SIZES[0], NO_REUSE, LITTLE_MEMORY) if varied else ()
        groups = [default_tasks("validation", range(seeds)), *(default_tasks("validation", [seeds], s) for s in scenarios)]
        self._weights = np.array([len(scenarios) or 1, *[1.0] * len(scenarios)])
        self._groups = [[(task, _hashing_s(task)) for task in group] for group in groups]

    def __call__(self, student: Student) -> tuple[float, float]:
        """(percent of hashing, largest share of a workload's calls on one node of the default scenario)."""
        percents, fullest = [], 0.0
        for index, group in enumerate(self._groups):
            ratios = []
            for task, hashing_s in group:
                records = roll(student, task, record=False).records
                ratios.append(records.completion_s.mean() / hashing_s)
                if index == 0:
                    fullest = max(fullest, fullest_share(records, task.scenario.nodes))
            percents.append(100 * float(np.mean(ratios)))
        return float(np.average(percents, weights=self._weights)), fullest


def _hashing_s(task: Task) -> float:
    return float(simulate(task.workload, Hashing(), task.scenario).completion_s.mean())


def percent_on_test(student: Student, seeds: Sequence[int] = TEST_SEEDS) -> float:
    """% of hashing on the test split of the default scenario: for reports, when every choice has been made."""
    ratios = [_completion_s(student, task) / _hashing_s(task) for task in default_tasks("test", seeds)]
    return 100 * float(np.mean(ratios))


def _completion_s(student: Student, task: Task) -> float:
    return float(roll(student, task, record=False).records.completion_s.mean())
