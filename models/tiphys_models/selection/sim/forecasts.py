"""What forecasters learn from: states of simulated episodes, and what every host really used in the interval that followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.repair import repair
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.planners.registry import make_planner
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.workloads import make_workload

_BEHAVIOUR = ("cost-lean", "energy-lean", "one-per-host", "random-host")
_BLOCK = 20
"""Intervals under one behaviour: series look like those of an episode under one planner."""


def busy_hosts(
    workload: str, split: str, seeds: Sequence[int], intervals: int, encode: Callable[[CloudState], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """(inputs, utilisation of the coming interval without new tasks), one row for every host with tasks at every moment.

    The answer is counterfactual, from a clone in which nothing waits: what is observed also holds the new tasks, which a forecast
    must not.
    """
    inputs, answers = [], []
    for seed in seeds:
        rng = stream("forecasts", split, workload, seed)
        cloud = Cloud(make_workload(workload, split, seed, intervals))
        planner = make_planner(_BEHAVIOUR[0])
        while not (cloud.over and cloud.interval >= intervals):
            if cloud.interval % _BLOCK == 0:
                planner = make_planner(_BEHAVIOUR[int(rng.integers(len(_BEHAVIOUR)))])
            state, tasks = cloud.state(), cloud.tasks()
            if len(cloud.running):
                without = cloud.clone()
                without.waiting = without.waiting[:0]
                without.advance()
                busy = state.running_count() > 0
                inputs.append(encode(state)[busy])
                answers.append(without.state().utilisation[busy])
            if len(tasks):
                plan = repair(state, tasks, planner.assign(state, tasks, int(rng.integers(2**32))))
                cloud.place(plan, scheduling_s(planner.name, len(tasks)))
            cloud.advance()
    return np.concatenate(inputs), np.concatenate(answers)
