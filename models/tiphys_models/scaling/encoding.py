"""What networks read of a service: ratios, so that one network serves services of any size.

`scaling/1`, by column of `NAMES`; everything is clipped to [-4, 4].
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.recurrence import Recurrence
from tiphys_models.scaling.seen import ServiceHistory

SCHEMA = "scaling/1"
NAMES = (
    "log load over capacity", "log p90 over target", "late", "late before", "late, mean of 4", "waiting over capacity", "throttled",
    "replicas over 8", "limit over largest", "share not ready", "log rate 1 ago over now", "log rate 2 ago over now",
    "log rate 3 ago over now", "log rate 5 ago over now", "spread of 8 over now", "log highest of 8 over now", "log lowest of 8 over now",
    "log highest of 40 over now", "log expected over now", "confidence", "jumps an hour over 10", "log price", "log target in windows",
)  # fmt: skip
WIDTH = len(NAMES)
PEAK = 40
"""Windows of the recent peak."""


def peak(seen: ServiceHistory) -> FloatArray:
    """Highest rate of the recent past."""
    return np.asarray(np.nan_to_num(seen.rates[:, -PEAK:]).max(axis=1))


def encode(seen: ServiceHistory, again: Recurrence, price: FloatArray) -> FloatArray:
    """The inputs of every service, float64[services, WIDTH]; the module says what each column is."""
    floor = 1.0
    now = np.maximum(np.nan_to_num(seen.rates[:, -1]), floor)
    recent = np.where(np.isnan(seen.rates[:, -8:]), now[:, None], seen.rates[:, -8:])
    capacity = np.maximum(seen.ready, 1) * seen.cpu_m / seen.cpu_ms
    late = np.nan_to_num(seen.late)

    def over_now(rate: FloatArray) -> FloatArray:
        return np.asarray(np.log(np.maximum(rate, floor) / now))

    columns = [
        np.log(now / capacity),
        np.log(np.where(np.isnan(seen.p90_s), 1.0, seen.p90_s / seen.target_s)) / 2,
        late[:, -1],
        late[:, -2],
        late[:, -4:].mean(axis=1),
        seen.waiting() / (capacity * seen.window_s),
        np.nan_to_num(seen.throttled),
        seen.replicas / 8,
        seen.cpu_m / seen.max_cpu_m,
        1 - seen.ready / np.maximum(seen.replicas, 1),
        *(over_now(recent[:, -1 - back]) for back in (1, 2, 3, 5)),
        recent.std(axis=1) / now,
        over_now(recent.max(axis=1)),
        over_now(recent.min(axis=1)),
        over_now(peak(seen)),
        over_now(np.where(np.isnan(again.rate), now, again.rate)),
        again.confidence,
        again.jumps / 10,
        np.log(price),
        np.log(seen.target_s / seen.window_s),
    ]
    return np.asarray(np.clip(np.array(columns).T, -4.0, 4.0))
