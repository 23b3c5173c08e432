"""CPU a request takes, learned from every window: one ratio of CPU used to requests completed, older windows counting less.

Late windows count, too: after a release no window keeps the objective until the new number is known. What was declared or believed holds
until enough requests were measured. Pure, and small enough for a status.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

HALF_LIFE = 8
"""Windows after which one counts half."""
ENOUGH = 30.0
"""Completed requests that replace what was believed: fewer would be charged with idle work."""
LEAST_MS, MOST_MS = 1e-3, 6e5
"""What a ScalingPolicy may declare; a ratio outside is no reading."""
LEAST_JUMP, JUMP_SIGMAS = 0.06, 3.0
LEAST_CLIP, CLIP_SIGMAS = 0.03, 2.0
_KEPT = 2.0 ** (-1 / HALF_LIFE)
_CALM = 0.9


@dataclass(frozen=True, slots=True)
class RequestCPU:
    """What is known after a window."""

    cpu_ms: float
    """CPU milliseconds a request, the number to size by: what was declared, until something was measured."""
    used_ms: float = 0.0
    """CPU milliseconds of past windows, fading."""
    completed: float = 0.0
    """Requests of past windows, fading alike."""
    variance: float = LEAST_CLIP**2
    """Of a window's own ratio about the learned one, as a share of it."""
    last_used_ms: float = 0.0
    last_completed: float = 0.0
    last_off: int = 0
    """Side to which the last window ran off: -1, 0, 1."""
    jumped: bool = False
    """Whether the newest window was the second that ran off: a release, and no noise."""

    @property
    def measured(self) -> bool:
        """Whether enough requests were seen to know better than what was declared."""
        return self.completed >= ENOUGH


def learned(known: RequestCPU, used_ms: float | None, completed: float) -> RequestCPU:
    """After one more window, `used_ms` its CPU milliseconds of all pods; one that was not measured, or had no request, says nothing."""
    if used_ms is None or not completed > 0 or not LEAST_MS <= used_ms / completed <= MOST_MS:
        return replace(known, jumped=False)
    if not known.measured:
        return _summed(known, used_ms + known.used_ms * _KEPT, completed + known.completed * _KEPT)
    off = used_ms / completed / known.cpu_ms - 1
    sigma = math.sqrt(known.variance)
    side = int(math.copysign(1, off)) if abs(off) > max(LEAST_JUMP, JUMP_SIGMAS * sigma) else 0
    if side and side == known.last_off:
        both_ms, both = used_ms + known.last_used_ms, completed + known.last_completed
        return replace(_summed(known, both_ms, both), jumped=True)
    # unclipped, the jump's own variance would hide its second window
    clipped = min(abs(off), max(LEAST_CLIP, CLIP_SIGMAS * sigma))
    found = _summed(known, used_ms + known.used_ms * _KEPT, completed + known.completed * _KEPT)
    return replace(
        found, variance=_CALM * known.variance + (1 - _CALM) * clipped**2, last_used_ms=used_ms, last_completed=completed, last_off=side
    )


def _summed(known: RequestCPU, used_ms: float, completed: float) -> RequestCPU:
    cpu_ms = used_ms / completed if completed >= ENOUGH else known.cpu_ms
    return RequestCPU(cpu_ms, used_ms, completed, known.variance)
