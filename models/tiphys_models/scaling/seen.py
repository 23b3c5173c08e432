"""What agents read: the states of many services as arrays, one row a service. One row is served; simulators play thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.state import ScalingState

HISTORY = 960
"""Windows of rates: four hours of 15 s."""
RECENT = 20
"""Windows of what is remembered besides: as far back as HPA looks at 15 s."""


@dataclass(frozen=True, slots=True)
class ServiceHistory:
    """Rows are services; time runs along the second axis, the newest last. NaN is a measurement that is missing."""

    window_s: float
    rates: FloatArray
    """[services, windows]: requests a second; a window that was not measured repeats the one before, for missing is never zero"""
    late: FloatArray
    """Share of late requests in each recent window, [services, RECENT]."""
    used_cpu_m: FloatArray
    """[services, RECENT]: of all pods together"""
    p90_s: FloatArray
    in_flight: FloatArray
    throttled: FloatArray
    replicas: IntArray
    ready: IntArray
    cpu_m: FloatArray
    cpu_ms: FloatArray
    target_s: FloatArray
    min_replicas: IntArray
    max_replicas: IntArray
    min_cpu_m: FloatArray
    max_cpu_m: FloatArray
    step_cpu_m: FloatArray
    movable: BoolArray
    """[services, 4]: replicas up, replicas down, CPU up, CPU down"""
    headroom: FloatArray
    """The factor on a predicted rate that the controller has come to; NaN where there is none."""
    stands: BoolArray
    """Whether pods stand by for jumps."""

    def __len__(self) -> int:
        return len(self.replicas)

    def waiting(self) -> FloatArray:
        """Requests in flight beyond the half second's worth that is in flight anyway; 0 where it is not measured."""
        return np.maximum(np.nan_to_num(self.in_flight) - 0.5 * np.nan_to_num(self.rates[:, -1]), 0.0)


def seen_of(states: Sequence[ScalingState]) -> ServiceHistory:
    """Services with equal windows, side by side."""
    newest = [s.windows[-1] for s in states]

    return ServiceHistory(
        window_s=states[0].window_s,
        rates=np.array([_carried(_padded(s.rates, HISTORY)) for s in states]),
        late=np.array([_padded([w.late for w in s.windows], RECENT) for s in states]),
        used_cpu_m=np.array([_padded([w.used_cpu_m for w in s.windows], RECENT) for s in states]),
        p90_s=column([w.p90_s for w in newest]),
        in_flight=column([w.in_flight for w in newest]),
        throttled=column([w.throttled for w in newest]),
        replicas=np.array([s.replicas for s in states], np.int64),
        ready=np.array([s.ready for s in states], np.int64),
        cpu_m=column([s.cpu_m for s in states]),
        cpu_ms=column([s.cpu_ms for s in states]),
        target_s=column([s.objective.target_s for s in states]),
        min_replicas=np.array([s.bounds.min_replicas for s in states], np.int64),
        max_replicas=np.array([s.bounds.max_replicas for s in states], np.int64),
        min_cpu_m=column([s.bounds.min_cpu_m for s in states]),
        max_cpu_m=column([s.bounds.max_cpu_m for s in states]),
        step_cpu_m=column([s.bounds.step_cpu_m for s in states]),
        movable=np.array([(s.mask.replicas_up, s.mask.replicas_down, s.mask.cpu_up, s.mask.cpu_down) for s in states], np.bool_),
        headroom=column([s.headroom for s in states]),
        stands=np.array([s.stands for s in states], np.bool_),
    )


def column(values: Sequence[float | None]) -> FloatArray:
    """An array of the values, with None as NaN."""
    return np.array([np.nan if v is None else v for v in values], np.float64)


def _padded(values: Sequence[float | None], length: int) -> FloatArray:
    kept = column(values[-length:])
    return np.concatenate([np.full(length - len(kept), np.nan), kept])


def _carried(rates: FloatArray) -> FloatArray:
    known = np.maximum.accumulate(np.where(np.isnan(rates), 0, np.arange(len(rates))))
    return np.asarray(rates[known])
