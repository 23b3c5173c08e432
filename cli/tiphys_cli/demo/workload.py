"""Arrivals: calls of every function over a span of time, part of them in bursts. Same seed, same calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiphys_cli.demo.functions import FUNCTIONS, FunctionProfile

_SPLIT = 0x74697068  # keeps the demo's random numbers apart from those of any other generator with the same seed


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function."""

    name: str
    """Unique within the workload; the pod's name."""
    function: str
    due_s: float
    """Seconds after the start of the replay."""


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """How calls come. The counts follow the paper's choice of Azure rows: 20 to 40 calls a function in 60 columns."""

    span_s: float = 60.0
    least_calls: int = 20
    most_calls: int = 40
    burst_share: float = 0.4
    """Part of the calls that come in bursts."""
    least_burst: int = 3
    most_burst: int = 8
    burst_span_s: float = 1.0


def make_calls(seed: int, shape: WorkloadShape | None = None, functions: Sequence[FunctionProfile] = FUNCTIONS) -> list[Call]:
    """All calls, in order of time."""
    shape = shape or WorkloadShape()
    random = np.random.default_rng([_SPLIT, seed])
    due: list[tuple[float, str]] = []
    for function in functions:
        count = int(random.integers(shape.least_calls, shape.most_calls + 1))
        due += [(at_s, function.name) for at_s in _arrivals(random, count, shape)]
    due.sort()
    return [Call(f"{function}-{number:04d}", function, at_s) for number, (at_s, function) in enumerate(due)]


def _arrivals(random: np.random.Generator, count: int, shape: WorkloadShape) -> list[float]:
    in_bursts = round(count * shape.burst_share)
    times: list[float] = [float(t) for t in random.uniform(0.0, shape.span_s, count - in_bursts)]
    while in_bursts > 0:
        size = min(in_bursts, int(random.integers(shape.least_burst, shape.most_burst + 1)))
        start_s = random.uniform(0.0, max(shape.span_s - shape.burst_span_s, 0.0))
        times += [min(float(t), shape.span_s) for t in start_s + random.uniform(0.0, shape.burst_span_s, size)]
        in_bursts -= size
    return times
