"""A look between two windows: where more arrives than fits and requests already wait, what is short grows at once. Pure.

It only raises, and only over what was ordered last: a resize under way is never undone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LOOK_S = 3.0
"""Seconds between two looks; also the time in which what waits should be served."""
FULL = 0.98
"""Share of the capacity that what arrives must exceed."""


@dataclass(frozen=True, slots=True)
class LookReading:
    """What the newest samples say of one service."""

    rate: float
    """Requests a second since the look before."""
    in_flight: float


@dataclass(frozen=True, slots=True)
class Ordered:
    """The sizes that were asked for last, and how many of the pods serve."""

    replicas: int
    ready: int
    cpu_m: float
    max_replicas: int
    max_cpu_m: float
    step_cpu_m: float = 10.0


@dataclass(frozen=True, slots=True)
class Need:
    """What a request takes, and how it is bought."""

    cpu_ms: float
    headroom: float
    target_s: float
    pod_m: float
    """A pod is planned to grow to this size."""
    spare_m: float = 0.0


def overrun(seen: LookReading, ordered: Ordered, need: Need) -> bool:
    """Whether the sizes neither serve what waits within the objective nor keep up with what comes.

    A queue alone is no reason: behind something else that is slow it grows, too, and CPU would not help.
    """
    capacity_m = max(ordered.ready, 1) * ordered.cpu_m
    return seen.in_flight * need.cpu_ms > capacity_m * need.target_s and seen.rate * need.cpu_ms > FULL * capacity_m


def raised(seen: LookReading, ordered: Ordered, need: Need, look_s: float = LOOK_S) -> tuple[int, float] | None:
    """Pods and size to go to now; None: all is well, or bounds leave nothing to raise."""
    if not overrun(seen, ordered, need):
        return None
    coming_m = seen.rate * need.headroom * need.cpu_ms
    waiting_m = max(seen.in_flight - seen.rate * need.target_s / 2, 0.0) * need.cpu_ms / look_s
    pods = int(np.ceil(coming_m / min(need.pod_m, ordered.max_cpu_m) - 1e-6))
    share_m = (coming_m + waiting_m) / max(ordered.ready, 1) + need.spare_m
    step = ordered.step_cpu_m
    cpu_m = min(float(np.ceil(share_m / step - 1e-6) * step), ordered.max_cpu_m)
    wanted = max(min(pods, ordered.max_replicas), ordered.replicas), max(cpu_m, ordered.cpu_m)
    return None if wanted == (ordered.replicas, ordered.cpu_m) else wanted
