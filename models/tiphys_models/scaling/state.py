"""One workload at the end of a decision interval: what was measured, what is allowed, what is wanted. Standard library only.

Readings are of windows that have ended and carry their time; whoever has no reading leaves the window out. CPU sizes are limits per
pod in millicores; requests move with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STALE_WINDOWS = 2.5
"""A newest reading older than this many windows is none: scraping and querying take up to one and a half."""


@dataclass(frozen=True, slots=True)
class Objective:
    """A window is kept if `percentile` of its requests end within `target_s`."""

    target_s: float = 0.4
    percentile: float = 0.9
    attainment: float = 0.95
    """Wanted share of windows that are kept; a model's card maps it to the price of a violation."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an answer must stay within."""

    min_replicas: int = 1
    max_replicas: int = 16
    min_cpu_m: int = 50
    max_cpu_m: int = 640
    step_cpu_m: int = 10
    """Sizes are rounded up to a multiple of it: container runtimes do not keep finer ones."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Which moves are possible now; staying is always possible."""

    replicas_up: bool = True
    replicas_down: bool = True
    cpu_up: bool = True
    cpu_down: bool = True


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured between two decisions. A measurement that is missing is None, never zero."""

    at_s: float
    """When it ended: seconds since the epoch."""
    length_s: float
    arrived: float
    """Requests that arrived in the window."""
    completed: float
    """Requests that were answered or given up; those of earlier windows too."""
    late: float | None
    """Share of the completed that took longer than the target or were given up; 1 if requests arrived or waited and none was completed."""
    p90_s: float | None = None
    """90th percentile of latency of the completed requests, in seconds; None where nothing was completed."""
    in_flight: float | None = None
    """Requests that wait or are being served at the end of the window."""
    used_cpu_m: float | None = None
    """CPU that all pods used together, in millicores."""
    throttled: float | None = None
    """Share of the pods' CFS periods in which they were stopped."""


@dataclass(frozen=True, slots=True)
class ScalingState:
    """Everything an agent may know; agents keep nothing between calls."""

    workload: str
    now_s: float
    window_s: float
    replicas: int
    """Wanted, as in `spec.replicas`."""
    ready: int
    cpu_m: int
    """CPU limit of one pod, in millicores."""
    windows: tuple[Window, ...]
    """Those that were measured, oldest first; agents read the last `seen.RECENT`."""
    rates: tuple[float, ...]
    """Requests a second of up to `seen.HISTORY` windows, oldest first, the last one the newest window's; NaN where none was measured."""
    cpu_ms: float
    """CPU milliseconds a request takes, which are also the millicores a request per second needs."""
    objective: Objective = field(default_factory=Objective)
    bounds: Bounds = field(default_factory=Bounds)
    mask: Mask = field(default_factory=Mask)
    headroom: float | None = None
    """The factor on a predicted rate that the controller has come to; None where there is none."""
    stands: bool = False
    """Whether pods stand by for jumps."""

    @property
    def stale(self) -> bool:
        """Whether nothing recent was measured: then nothing may be decided."""
        return not self.windows or self.now_s - self.windows[-1].at_s > STALE_WINDOWS * self.window_s


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Replicas and size together, and why. As an agent says it: bounds, mask and limits come after."""

    replicas: int
    cpu_m: int
    reason: str
    """`Rule`, `BestValue`, `KeptRule` (the agent's gate does not trust its best value), `NoData` (nothing changes)."""
    action: str = ""
    """A learned agent's action by name."""
    values: Mapping[str, float] = field(default_factory=dict)
    """A learned agent's value of every action it could take."""
