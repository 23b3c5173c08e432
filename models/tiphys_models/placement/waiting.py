"""Whether a call that would start cold had better wait for a warm instance: "not yet", an answer beside all nodes.

A call waits only for an instance that somebody is expected to give back, each call for one of its own: those of its function that wait
already come first. Whoever asks holds the bound on how long anybody waits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray

LONGEST_S = 10.0
"""How long anybody waits by default. A shorter bound is the worst of both: at 1 s more than half of them start cold all the same."""
SURE = 0.9
"""How much of what waiting is expected to save an estimate is trusted for: instances come rather later than expected than sooner."""
LOOK_AGAIN_S = 0.5
"""How often those who wait are looked at where no call has ended meanwhile."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """A policy's answer that waiting is better than any node now."""

    awaited_s: float
    """When an instance is expected to be free."""
    saved_s: float
    """How much sooner than on the best node the call is expected to be done."""


def awaited_s(rests_s: FloatArray, before: int) -> float:
    """When an instance is free for a call with so many others before it; infinite if fewer calls of its function are open than that."""
    if len(rests_s) <= before:
        return np.inf
    return float(np.sort(rests_s)[before])
