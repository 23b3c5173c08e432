"""What both simulators do and say: the environment API that agents are played against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tiphys_models.base.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PlantReadings:
    """Measured over one window, a row a service; `late` counts requests, the rest is as in `scaling.state.Window`."""

    arrived: FloatArray
    completed: FloatArray
    late: FloatArray
    p90_s: FloatArray
    in_flight: FloatArray
    used_cpu_m: FloatArray
    throttled: FloatArray


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """[services, windows]: requests by the window in which they arrived. Late are also those never served."""

    arrived: FloatArray
    late: FloatArray
    never: FloatArray


class Plant(Protocol):
    """Services under load. Pods of a service are numbered; the newest have the highest numbers."""

    def start_pod(self, service: int, pod: int, ready_s: float) -> None:
        """A pod that was not there is ready from this time on, counted from the start."""
        ...

    def stop_pods(self, service: int, left: int) -> None:
        """Only the first `left` pods remain."""
        ...

    def pass_time(self, replicas: IntArray, cpu_m: FloatArray, periods: int) -> None:
        """So many CFS periods of the present window with these sizes; a window is never overrun."""
        ...

    def glance(self) -> tuple[FloatArray, FloatArray]:
        """Requests that have arrived in the window so far, and those in flight, by service."""
        ...

    def read(self) -> PlantReadings:
        """The window that has ended; the next one begins."""
        ...

    def advance(self, replicas: IntArray, cpu_m: FloatArray) -> PlantReadings:
        """One window with these sizes."""
        ...

    def outcome(self) -> RequestCounts:
        """Arrived, late and never served requests of the whole run."""
        ...
