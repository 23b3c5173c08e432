"""What is simulated: a service's CPU demand, how it starts, and the modelling choices that decide results."""

from __future__ import annotations

from dataclasses import dataclass

PERIOD_S = 0.1
"""CFS: a pod that has used up its quota stands still until the next period."""


@dataclass(frozen=True, slots=True)
class SimulatedService:
    """CPU time of a request is exponential."""

    name: str
    cpu_ms: float
    """Mean CPU milliseconds: millicores per request a second."""
    useful_m: float
    """One pod serves one request at a time, and uses no more than this, whatever its limit: the rest of its wall time it waits."""


FIBONACCI = SimulatedService("fibonacci", 1 / 0.6, 633.0)
GEO = SimulatedService("geo", 1 / 0.6, 692.0)
PROFILE = SimulatedService("profile", 1 / 0.6, 533.0)
HOTEL = (FIBONACCI, GEO, PROFILE)
"""Three services side by side: 380, 415 and 320 requests a second of one unlimited pod."""


@dataclass(frozen=True, slots=True)
class ServiceScenario:
    """The defaults are those of the published tables."""

    name: str = "default"
    window_s: float = 15.0
    """Length of a window: agents are given readings and decide once in each."""
    lag_windows: int = 0
    """Readings are older by so many windows."""
    start_s: tuple[float, float] = (2.0, 10.0)
    """A pod is ready after a time drawn uniformly; a resize in place takes none."""
    time_out_s: float = 30.0
    """A request that has not ended by then never will, and counts as late."""
    target_s: float = 0.4
    percentile: float = 0.9
    max_replicas: int = 16
    min_cpu_m: float = 50.0
    max_cpu_m: float = 640.0
    step_cpu_m: float = 10.0
    per_pod_queues: bool = False
    """Requests are given to a ready pod when they arrive, and stay there; else they wait in one queue. Request by request only."""

    def __post_init__(self) -> None:
        if self.time_out_s <= self.target_s:
            raise ValueError("a time-out below the target would hide late requests from whoever looks at answers only")

    @property
    def periods(self) -> int:
        """CFS periods in one window."""
        return round(self.window_s / PERIOD_S)


DEFAULT_SCENARIO = ServiceScenario()
