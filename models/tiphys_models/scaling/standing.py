"""Standing pods: as many as the highest rate right after a jump took. They cost their price, not their CPU: sizes shrink in place.

A pod that is there can grow within a second; one that must start is late for a jump by its whole start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray

REMEMBERED = 240
"""Windows in which a jump is remembered: an hour of 15 s."""
RISE, SIGMAS = 1.4, 4.0
"""A rate this many times the window before's, and so many standard deviations of chance above it, is a jump."""
_SLOWLY = 0.2


def rate_after_jumps(rates: FloatArray, window_s: float) -> FloatArray:
    """[services]: the highest rate of the remembered windows that jumped; 0 where none did. `rates` is [services, windows], newest last."""
    recent = np.nan_to_num(rates[:, -REMEMBERED - 1 :])
    before, after = recent[:, :-1], recent[:, 1:]
    jumped = (after > RISE * before + SIGMAS * np.sqrt(before / window_s)) & (before > 0)
    return np.asarray(np.where(jumped, after, 0.0).max(axis=1, initial=0.0))


@dataclass(frozen=True, slots=True)
class Delays:
    """How late everything is, as measured."""

    start_s: float | None = None
    """Seconds from a pod's creation to its readiness, the newest starts counting most; None: none was seen."""
    lag_s: float = 0.0
    """Age of the newest readings when they are decided by."""

    def started(self, seconds: float) -> Delays:
        """After one more pod has become ready."""
        known = self.start_s
        return replace(self, start_s=seconds if known is None else known + _SLOWLY * (seconds - known))


def stands(delays: Delays, window_s: float) -> bool:
    """Whether standing pods are worth their price: only where a pod that is asked for now is not there within a window."""
    return (delays.start_s or 0.0) + delays.lag_s >= window_s
