"""What `tiphys bench bill` plays: batch pods with run times by application and deadlines, and services that are rolled up and down.

All times are seconds of model time from the beginning of what is billed; what begins before it is there to be running when it begins.
A seed is a trace, the same in every lane, world and release.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from hashlib import sha256

import numpy as np
import orjson

from tiphys_models.base.random import stream

USD_PER_CORE_HOUR, USD_PER_GB_HOUR = 0.025, 0.001
"""Exactly what Karpenter's simulated cloud asks on demand, for every size: so what is requested has a price of its own."""
_MIB, _GB = 1024**2, 1e9
_RATE_PER_S = 1.2 / 15
_WAVES, _SWELL = 2, 0.8
_CLASSES = ((0.6, 1.0, 4.0, 6), (0.3, 4.0, 10.0, 4), (0.1, 10.0, 20.0, 2))
"""Of each class of applications: its share of the pods, the shortest and longest median of run times in minutes, how many there are."""
_CV = 0.3
_SLACK, _GRACE_S = 1.5, 300.0
"""A deadline is so many run times and seconds after the arrival: a birth of a node fits, a second run from the start does not."""


@dataclass(frozen=True, slots=True)
class BatchPod:
    """One pod that runs to its end."""

    name: str
    application: str
    arrive_s: float
    run_s: float
    due_s: float
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Service:
    """A Deployment, with how many replicas are wanted from when on."""

    name: str
    cpu_milli: int
    memory_mib: int
    steps: tuple[tuple[float, int], ...]

    def replicas_at(self, at_s: float) -> int:
        """How many are wanted at that time."""
        return [replicas for begin_s, replicas in self.steps if begin_s <= at_s][-1]


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that comes in one run."""

    seed: int
    lead_s: float
    """How long before the bill's beginning the first batch pods come."""
    window_s: float
    tail_s: float
    """How long before its end the last ones come."""
    batch: tuple[BatchPod, ...]
    services: tuple[Service, ...]

    @property
    def digest(self) -> str:
        """sha256 of all of it."""
        return sha256(orjson.dumps(asdict(self), option=orjson.OPT_SORT_KEYS)).hexdigest()


@dataclass(frozen=True, slots=True)
class _Application:
    name: str
    median_s: float
    cpu_milli: int
    memory_mib: int


def make_trace(seed: int, *, lead_s: float, window_s: float, tail_s: float) -> Trace:
    """The trace of a seed."""
    rng = stream("bill", seed)
    kinds = [_applications(rng, n, low, high, count) for n, (_, low, high, count) in enumerate(_CLASSES)]
    shares = [share for share, *_ in _CLASSES]
    batch: list[BatchPod] = []
    spread = math.sqrt(math.log1p(_CV**2))
    for at_s in _arrivals(rng, -lead_s, window_s - tail_s):
        kind = kinds[rng.choice(len(kinds), p=shares)]
        one = kind[rng.integers(len(kind))]
        run_s = round(float(one.median_s * np.exp(rng.normal(0.0, spread))), 2)
        due_s = round(at_s + _SLACK * run_s + _GRACE_S, 2)
        batch.append(BatchPod(f"b{len(batch):04d}", one.name, round(at_s, 2), run_s, due_s, one.cpu_milli, one.memory_mib))
    return Trace(seed, lead_s, window_s, tail_s, tuple(batch), _services(rng, window_s))


def _applications(rng: np.random.Generator, kind: int, low_min: float, high_min: float, count: int) -> list[_Application]:
    found = []
    for n in range(count):
        median_s = 60.0 * low_min * (high_min / low_min) ** float(rng.uniform())
        cpu_milli = int(rng.choice((250, 500, 1000, 2000), p=(0.3, 0.3, 0.25, 0.15)))
        memory_mib = round(cpu_milli / 1000 * float(rng.uniform(1.0, 4.0)) * 1024)
        found.append(_Application(f"batch-{kind}{n}", median_s, cpu_milli, memory_mib))
    return found


def _arrivals(rng: np.random.Generator, begin_s: float, end_s: float) -> list[float]:
    """A Poisson process whose rate swells and ebbs, by thinning."""
    most, at_s, found = _RATE_PER_S * (1 + _SWELL), begin_s, []
    while (at_s := at_s + float(rng.exponential(1 / most))) < end_s:
        phase = (at_s - begin_s) / (end_s - begin_s)
        if rng.uniform() * most < _RATE_PER_S * (1 + _SWELL * math.sin(2 * math.pi * _WAVES * phase)):
            found.append(at_s)
    return found


def _services(rng: np.random.Generator, window_s: float) -> tuple[Service, ...]:
    """One that follows the day, and two that only stay."""
    shares = (0.0, 0.15, 0.35, 0.55, 0.75, 0.9)
    levels = (8, 12, 9, 5, 8, 10)
    steps = tuple(
        (share * window_s if share else -math.inf, int(level + rng.integers(-1, 2))) for share, level in zip(shares, levels, strict=True)
    )
    first = (-1e9, steps[0][1])
    web = Service("web", 500, 1024, (first, *steps[1:]))
    return (web, Service("api", 1000, 2048, ((-1e9, 4),)), Service("store", 1000, 4096, ((-1e9, 2),)))


def usd_per_hour(cpu_milli: int, memory_mib: int) -> float:
    """What a node of exactly this size would cost."""
    return cpu_milli / 1000 * USD_PER_CORE_HOUR + memory_mib * _MIB / _GB * USD_PER_GB_HOUR


def bound_usd(trace: Trace) -> float:
    """What nobody can go below: every pod alone on nodes of its own size, from its arrival to its end or the window's."""
    total = 0.0
    for pod in trace.batch:
        seconds = min(pod.arrive_s + pod.run_s, trace.window_s) - max(pod.arrive_s, 0.0)
        total += max(seconds, 0.0) / 3600 * usd_per_hour(pod.cpu_milli, pod.memory_mib)
    for service in trace.services:
        ends = [*(begin_s for begin_s, _ in service.steps[1:]), trace.window_s]
        for (begin_s, replicas), end_s in zip(service.steps, ends, strict=True):
            total += max(end_s - max(begin_s, 0.0), 0.0) / 3600 * replicas * usd_per_hour(service.cpu_milli, service.memory_mib)
    return total
