"""What a run plays: the shape `flash` scaled to the machine in rate and in time, and the sizes that everybody may use. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.random import stream
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO
from tiphys_models.scaling.sim.shapes import FLASH_PER_HOUR, HOUR_S, make_shape
from tiphys_models.scaling.state import Objective

OBJECTIVE = Objective(target_s=0.4, percentile=0.9, attainment=0.95)
START_HEADROOM = 1.25
"""Everybody begins with so much more than the first rate takes, as in the simulator; who never scales, than the peak takes."""
STEP_M = 10
QUARTER_S = HOUR_S // FLASH_PER_HOUR
"""Each has one jump."""
_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class LimitSizes:
    """Millicores of a pod's limit; requests are equal to it."""

    least_m: int = 50
    most_m: int = 800
    """The largest pod: as in the simulator, it may grow to most of what it can use, which is what a worker of the kind path gives."""
    most_pods: int = 4
    hpa_pod_m: int = 150
    """HPA's pods have one size: 500m in the simulator, whose peak is three to four times as high."""
    hpa_most_pods: int = 8


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """One run of all lanes: the same load for each."""

    seed: int = 0
    shape: str = "flash"
    window_s: int = 5
    seconds: int = 300
    warm_up_s: int = 60
    """Seconds at the first rate before anything counts: autoscalers begin with measurements."""
    peak_cores: float = 0.4
    sizes: LimitSizes = LimitSizes()

    @property
    def haste(self) -> float:
        """Seconds of the shape in one here: its windows of 15 s are shortened, and everything in it with them."""
        return DEFAULT_SCENARIO.window_s / self.window_s

    @property
    def windows(self) -> int:
        """The number of whole windows in the run."""
        return self.seconds // self.window_s


@dataclass(frozen=True, slots=True)
class LaneLoad:
    """Arrivals of one lane, the same for all."""

    rates: FloatArray
    """Requests a second, of every tick after the warm-up."""
    due_s: FloatArray
    """Every request, the warm-up's too."""
    warm_up_s: float
    cpu_s: float
    """CPU seconds that a request takes, in all services together."""
    shares: Mapping[str, float]
    """The share of each service in `cpu_s`."""

    @property
    def base_cores(self) -> float:
        """What the first rate takes."""
        return float(self.rates[0]) * self.cpu_s

    @property
    def peak_cores(self) -> float:
        """What the highest rate takes."""
        return float(self.rates.max()) * self.cpu_s

    @property
    def jump_s(self) -> float | None:
        """When, after the warm-up, the rate first is half the way up; None where it never jumps."""
        return self._first(self.rates > self._half)

    @property
    def calm_s(self) -> float | None:
        """When it first is below that again."""
        begin_s = self.jump_s
        if begin_s is None:
            return None
        start = round(begin_s / _TICK_S)
        after = self._first(self.rates[start:] <= self._half)
        return None if after is None else begin_s + after

    @property
    def _half(self) -> float:
        return float(self.rates[0] + self.rates.max()) / 2

    @staticmethod
    def _first(found: np.ndarray) -> float | None:
        return float(np.argmax(found)) * _TICK_S if found.any() else None


def draw(plan: ComparisonPlan, cpu_by_service: Mapping[str, float]) -> LaneLoad:
    """The shape's test split, so that no agent has seen it; Poisson arrivals."""
    cpu_s = sum(cpu_by_service.values())
    quarters = math.ceil(plan.seconds * plan.haste / QUARTER_S)  # whole ones, so that a shorter run is the beginning of a longer one
    shape = make_shape(plan.shape, "test", plan.seed, quarters * QUARTER_S)
    at = np.arange(round(plan.seconds / _TICK_S)) * _TICK_S
    rates = shape.rps[(at * plan.haste).astype(int)] * (plan.peak_cores / cpu_s / shape.rps.max())
    rng = stream("kind-scaling", plan.shape, plan.seed)
    every = np.concatenate([np.full(round(plan.warm_up_s / _TICK_S), rates[0]), rates])
    counts = rng.poisson(every * _TICK_S)
    due_s = np.sort((np.repeat(np.arange(len(every)), counts) + rng.random(counts.sum())) * _TICK_S)
    return LaneLoad(rates, due_s, float(plan.warm_up_s), cpu_s, {name: each / cpu_s for name, each in cpu_by_service.items()})


def rounded(cores: float) -> int:
    """Millicores, rounded up to a step."""
    return int(-(-cores * 1000 // STEP_M) * STEP_M)


@dataclass(frozen=True, slots=True)
class Start:
    """Pods and their size."""

    pods: int
    cpu_m: int


def start(lane: str, load: LaneLoad, sizes: LimitSizes, share: float = 1.0) -> Start:
    """What a lane begins with, for a service that does this share of a request's work."""
    begin = rounded(START_HEADROOM * load.base_cores * share)
    if lane == "hpa":
        return Start(-(-begin // sizes.hpa_pod_m), sizes.hpa_pod_m)
    if lane == "peak":
        need = rounded(START_HEADROOM * load.peak_cores * share)
        pods = -(-need // sizes.most_m)
        return Start(pods, max(rounded(need / pods / 1000), sizes.least_m))
    return Start(1, max(begin, sizes.least_m))
