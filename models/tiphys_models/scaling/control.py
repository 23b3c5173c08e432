"""What is learned of one service from window to window beside its sizes: CPU a request, headroom, delays. One state, one pure step.

Whoever calls agents keeps the state: the simulator in its episode, a controller in a status. Agents remember nothing; they read the state's
numbers in their `ServiceHistory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tiphys_models.scaling.headroom import OBJECTIVE, Headroom, WindowOutcome, controlled, predicted
from tiphys_models.scaling.looks import LOOK_S
from tiphys_models.scaling.request_cpu import RequestCPU, learned
from tiphys_models.scaling.standing import Delays, stands


@dataclass(frozen=True, slots=True)
class Control:
    """What a user says, and what is switched off to see what it brings."""

    objective: float = OBJECTIVE
    """Share of windows to keep."""
    headroom: bool = True
    """Whether headroom follows misses, or stays at its start."""
    looks: bool = True
    """Whether sizes are raised between windows."""
    standing: bool | None = None
    """Whether pods stand by for jumps; None: where they are worth their price (`Learned.stands`)."""
    rise: float = 0.25
    """Share of the last rise that is predicted once more."""
    look_s: float = LOOK_S


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one service after a window."""

    request: RequestCPU
    headroom: Headroom = field(default_factory=Headroom)
    delays: Delays = field(default_factory=Delays)

    def stands(self, control: Control, window_s: float) -> bool:
        """Whether pods stand by for jumps: where starts and lag reach a window, or jumps alone take more windows than may be missed."""
        if control.standing is not None:
            return control.standing
        return stands(self.delays, window_s) or self.headroom.excused > 1 - control.objective


@dataclass(frozen=True, slots=True)
class WindowReading:
    """One window as it was measured; what is missing is None."""

    length_s: float
    rate: float
    completed: float
    late: float | None
    """Share of the completed requests."""
    used_cpu_m: float | None
    """Of all pods together."""
    rates_before: Sequence[float]
    """Requests a second that were known when the window's sizes were decided, oldest first; the last two count."""


def step(known: Learned, window: WindowReading, control: Control, percentile: float) -> Learned:
    """After one more window, `percentile` the share of its requests that must be in time."""
    used_ms = None if window.used_cpu_m is None else window.used_cpu_m * window.length_s
    request = learned(known.request, used_ms, window.completed)
    if not control.headroom:
        return replace(known, request=request)
    missed = None if window.late is None else window.late > 1 - percentile + 1e-9
    outcome = WindowOutcome(missed, window.rate, predicted(window.rates_before, control.rise), request.jumped, not request.measured)
    return replace(known, request=request, headroom=controlled(known.headroom, outcome, control.objective))
