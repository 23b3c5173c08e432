"""A bound: the least CPU that keeps each window by itself, chosen with its arrivals known, from an empty queue and without start times.

`relaxed` gives up the dearest windows until the wanted share is left, and pays nothing for those; the backlog they would leave is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.load import Load
from tiphys_models.scaling.sim.records import WindowRecords
from tiphys_models.scaling.sim.scenario import ServiceScenario

_STEPS = 11
"""Steps of the bisection, enough to come from twenty cores down to one step of sizes."""


def clairvoyant(load: Load, scenario: ServiceScenario, keep: float = 1.0) -> WindowRecords:
    """One service; windows that are given up count as lost, at no cost."""
    s = scenario
    windows = load.windows(s)
    needed_m = _least_m(load, s, windows)
    pods = np.ceil(needed_m / min(s.max_cpu_m, load.service.useful_m) - 1e-9).astype(np.int64)
    arrived = load.counts[: windows * s.periods].reshape(windows, -1).sum(axis=1)
    lost = np.zeros(windows, np.bool_)
    lost[np.argsort(-needed_m)[: windows - int(np.ceil(keep * windows - 1e-9))]] = True
    shown, size_m = np.where(lost, 0, pods), needed_m / np.maximum(pods, 1)
    return WindowRecords(
        arrived[None], np.where(lost, arrived, 0.0)[None], np.zeros((1, windows)), shown[None], size_m[None],
        shown[None].astype(np.float64), (shown * size_m)[None], arrived[None] / s.window_s, np.full((1, windows), np.nan),
        np.array([windows]), s.window_s, s.percentile,
    )  # fmt: skip


def _least_m(load: Load, s: ServiceScenario, windows: int) -> FloatArray:
    """Every window as a service of its own, with one pod that is as large as it takes; all are bisected together."""
    alone = _alone(load, s, windows)
    low, high = np.zeros(windows), np.full(windows, s.step_cpu_m * 2**_STEPS)
    for _ in range(_STEPS):
        middle = np.round((low + high) / 2 / s.step_cpu_m) * s.step_cpu_m
        plant = FluidServices(alone, s)
        plant.advance(np.ones(windows, np.int64), middle)
        plant.advance(np.ones(windows, np.int64), middle)
        out = plant.outcome()
        waiting = out.late[:, 0] > (1 - s.percentile) * out.arrived[:, 0] + 1e-9
        low, high = np.where(waiting, middle, low), np.where(waiting, high, middle)
    return np.asarray(np.maximum(high, s.min_cpu_m))


def _alone(load: Load, s: ServiceScenario, windows: int) -> Sequence[Load]:
    big = replace(load.service, useful_m=s.step_cpu_m * 2**_STEPS)
    shape = (windows, s.periods)
    counts, works = (a[: windows * s.periods].reshape(shape) for a in (load.counts, load.work_s))
    return [replace(load, service=big, counts=c, work_s=w) for c, w in zip(counts, works, strict=True)]


def smallest_sufficient_m(load: Load, scenario: ServiceScenario) -> float:
    """The smallest limit of one pod that keeps at least 95 % of the windows of this load, the queue carried on."""
    s, low, high = scenario, 0.0, scenario.max_cpu_m
    while high - low > s.step_cpu_m:
        middle = float(np.round((low + high) / 2 / s.step_cpu_m) * s.step_cpu_m)
        plant = FluidServices([load], s)
        windows = load.windows(s)
        for _ in range(windows + 1 + round(s.time_out_s / s.window_s)):
            plant.advance(np.ones(1, np.int64), np.array([middle]))
        out = plant.outcome()
        kept = out.late[0, :windows] <= (1 - s.percentile) * out.arrived[0, :windows] + 1e-9
        low, high = (low, middle) if kept.mean() >= 0.95 else (middle, high)
    return high
