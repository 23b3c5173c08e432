"""Fitting the tick version of the queues to the event version: `kernels.VARIABILITY` has the lowest error (`base/constants.json`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.streams.sim.episode import STATIC_ACTIONS, FixedAction, play
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.streams.sim.topology import make_topology
from tiphys_models.streams.sim.workloads import make_streams

GRID = (0.0, 0.1, 0.15, 0.175, 0.2, 0.225, 0.25, 0.3, 1.0)
LAMBDAS = (20.0, 60.0, 100.0)


@dataclass(frozen=True, slots=True)
class Error:
    """Failures per tick minus failures by events, in points, over static policies and rates. Rejects are the same in both."""

    rms_points: float
    mean_points: float
    worst_points: float


def variability_errors(seed: int = 0) -> dict[float, Error]:
    """Errors by variability: one episode of the calibration split for every static policy and rate, full-edge."""
    world = make_topology("full-edge").world
    gaps: dict[float, list[float]] = {v: [] for v in GRID}
    for rate in LAMBDAS:
        streams = make_streams("calibration", seed, rate)
        for action in STATIC_ACTIONS:
            true = play(world, streams, FixedAction(action), replace(DEFAULT_SCENARIO, events=True)).outcome.shares()[2]
            for v, found in gaps.items():
                ticks = play(world, streams, FixedAction(action), replace(DEFAULT_SCENARIO, variability=v)).outcome.shares()[2]
                found.append(100 * (ticks - true))
    return {v: Error(float(np.sqrt(np.mean(np.square(g)))), float(np.mean(g)), float(np.abs(g).max())) for v, g in gaps.items()}
