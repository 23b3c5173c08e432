"""What the shipped model is trained and validated on: every workload of the training split, several ages, sizes and mixes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import BURST, KINDS, MULTI, Split, make_workload
from tiphys_models.placement.train.rollouts import Task

_PERIODS_S: tuple[tuple[float, float], ...] = (
    (1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (2.0, 0.0), (5.0, 0.0), (15.0, 0.0), (30.0, 0.0), (1.0, 1.0), (1.0, 3.0),
)  # fmt: skip
_NODES = (5, 7, 20)
_NO_REUSE = 0.25
"""Share of the varied lessons in which no container serves twice. Without them a student takes every start for the price of a
warm container that never comes, and does worse than counting calls where every call is a fresh pod."""
_MEMORY_GIB = (1.0, 2.0, 2.0, 2.0, 4.0)
_START_COST = (0.5, 1.0, 1.0, 1.0, 2.0)
VALIDATION_SEEDS = 3


def lessons_of(iteration: int, seed: int, *, size: int = 40, varied: bool = True, only: str | None = None) -> Sequence[Task]:
    """Training tasks of one iteration; no seed of one iteration comes again in another. Half of them are the default scenario.

    `only` names a workload that all of them are.
    """
    rng = np.random.default_rng([seed, iteration, 7])
    names = [only] if only else [*MULTI, *MULTI, *KINDS, BURST.name] if varied else list(MULTI)
    tasks = []
    for index in range(size):
        scenario = FaasScenario()
        if varied and index % 2:
            period_s, delay_s = _PERIODS_S[rng.integers(len(_PERIODS_S))]
            scenario = replace(
                scenario,
                period_s=period_s,
                delay_s=delay_s,
                mixed=bool(rng.uniform() < 0.35),
                reuse=bool(rng.uniform() >= _NO_REUSE),
                memory_gib=float(rng.choice(_MEMORY_GIB)),
                start_cost=float(rng.choice(_START_COST)),
            )
            if rng.uniform() < 0.3:
                scenario = scenario.with_nodes(int(rng.choice(_NODES)))
        name = names[(iteration * size + index) % len(names)]
        workload = make_workload(name, "train", seed * 1_000_000 + iteration * 1_000 + index, scenario.nodes)
        tasks.append(Task(workload, scenario))
    return tasks


def default_tasks(split: Split, seeds: Sequence[int], scenario: FaasScenario | None = None) -> Sequence[Task]:
    """The ten workloads that carry the published figures."""
    chosen = scenario or FaasScenario()
    return [Task(make_workload(name, split, seed, chosen.nodes), chosen) for name in MULTI for seed in seeds]
