"""Arrivals and their CPU times, drawn once a cell: every agent, and both simulators, get the same ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.sim.scenario import PERIOD_S, ServiceScenario, SimulatedService
from tiphys_models.scaling.sim.shapes import LoadShape

STARTS = 4096
"""Drawn start times of a cell, used in turn."""


@dataclass(frozen=True, slots=True)
class Load:
    """One service's arrivals per CFS period; single requests only where they were drawn."""

    shape: LoadShape
    service: SimulatedService
    counts: FloatArray
    work_s: FloatArray
    """CPU seconds that arrive in the period."""
    starts: FloatArray
    """Drawn numbers in [0, 1): where in the range of start times each pod's start time lies."""
    resizes: FloatArray
    """The same of resizes."""
    arrival_s: FloatArray | None = None
    cpu_s: FloatArray | None = None

    def windows(self, scenario: ServiceScenario) -> int:
        """Number of whole windows that the arrivals fill."""
        return len(self.counts) // scenario.periods


def draw_load(shape: LoadShape, service: SimulatedService, *, requests: bool = False) -> Load:
    """Poisson arrivals, uniform within their period; exponential CPU times. `requests`: every request by itself."""
    rng = shape.rng("load", service.name)
    per_s = round(1 / PERIOD_S)
    counts = rng.poisson(np.repeat(shape.rps * PERIOD_S, per_s))
    starts, resizes = shape.rng("starts").random(STARTS), shape.rng("resizes").random(STARTS)
    mean_s = service.cpu_ms / 1000
    if not requests:
        return Load(shape, service, counts.astype(np.float64), mean_s * rng.gamma(np.maximum(counts, 1e-9)), starts, resizes)
    period = np.repeat(np.arange(len(counts)), counts)
    arrival_s = np.sort((period + rng.random(len(period))) * PERIOD_S)
    cpu_s = rng.exponential(mean_s, len(period))
    work_s = np.bincount(period, weights=cpu_s, minlength=len(counts))
    return Load(shape, service, counts.astype(np.float64), work_s.astype(np.float64), starts, resizes, arrival_s, cpu_s)


def released(load: Load, factor: float) -> Load:
    """The same arrivals, whose CPU times are multiplied from half of the time on: a release that costs more."""
    if factor == 1.0:
        return load
    half = len(load.counts) // 2
    after = np.where(np.arange(len(load.counts)) >= half, factor, 1.0)
    cpu_s = None
    if load.cpu_s is not None and load.arrival_s is not None:
        cpu_s = load.cpu_s * np.where(load.arrival_s >= half * PERIOD_S, factor, 1.0)
    return replace(load, work_s=load.work_s * after, cpu_s=cpu_s)
