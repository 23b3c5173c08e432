"""What is simulated: a service's CPU demand, how it starts, and the modelling choices that decide results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """A pod is ready after a time drawn uniformly."""
    resize_s: tuple[float, float] = (0.0, 0.0)
    """A resize in place is done after a time drawn uniformly, and with it the removal of pods that it makes up for."""
    looks_late: int = 0
    """Looks between windows are older by so many looks."""
    cpu_believed: float = 1.0
    """CPU of a request that is believed at first, as a multiple of the true one."""
    cpu_measured: bool = False
    """Whether every agent is told what the estimator makes of its windows, and not the truth."""
    cpu_read: bool = True
    """Whether the CPU that pods use can be read at all."""
    work_after: float = 1.0
    """CPU of a request after half of the time, as a multiple of what it was: a release."""
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
        if self.looks_late < 0 or self.cpu_believed <= 0 or self.work_after <= 0:
            raise ValueError("looks cannot come early, and requests take some CPU")
        if self.time_out_s <= self.target_s:
            raise ValueError("a time-out below the target would hide late requests from whoever looks at answers only")

    @property
    def periods(self) -> int:
        """CFS periods in one window."""
        return round(self.window_s / PERIOD_S)


DEFAULT_SCENARIO = ServiceScenario()
START_CPU_M = 500.0
_LATE: dict[str, Any] = {"lag_windows": 2}
_SLOW: dict[str, Any] = {"start_s": (20.0, 40.0)}
SCENARIOS: Mapping[str, ServiceScenario] = {
    s.name: s
    for s in (
        DEFAULT_SCENARIO,
        ServiceScenario("resizes-late", resize_s=(1.0, 3.0)),
        ServiceScenario("resizes-3s", resize_s=(3.0, 3.0)),
        ServiceScenario("resize-refused", min_cpu_m=START_CPU_M, max_cpu_m=START_CPU_M),
        ServiceScenario("measured", cpu_measured=True),
        ServiceScenario("cpu-off-15", cpu_measured=True, cpu_believed=0.85),
        ServiceScenario("cpu-off-30", cpu_measured=True, cpu_believed=0.7),
        ServiceScenario("cpu-over-30", cpu_measured=True, cpu_believed=1.3),
        ServiceScenario("cpu-unread", cpu_measured=True, cpu_believed=0.7, cpu_read=False),
        ServiceScenario("lag-15", cpu_measured=True, lag_windows=1),
        ServiceScenario("lag-30", cpu_measured=True, **_LATE),
        ServiceScenario("starts-40", cpu_measured=True, **_SLOW),
        ServiceScenario("release", cpu_measured=True, work_after=1.2),
        ServiceScenario("all-wrong", cpu_measured=True, cpu_believed=0.7, work_after=1.2, looks_late=1, **_LATE, **_SLOW),
        ServiceScenario("all-wrong-looks-30s", cpu_measured=True, cpu_believed=0.7, work_after=1.2, looks_late=10, **_LATE, **_SLOW),
    )
}
"""What is believed wrongly, late or not to be had, by name. `measured` is right, and beside the others in what agents are told."""
