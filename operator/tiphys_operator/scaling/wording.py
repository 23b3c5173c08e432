"""A window and its decision in the words and figures of a status. Pure."""

from __future__ import annotations

from tiphys_models.api.scaling_status import MeasuredWindow as SeenWindow
from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling.state import ScalingDecision, ScalingState, Window


def shown(window: Window | None) -> SeenWindow | None:
    """A window as a status shows it."""
    if window is None:
        return None
    good = 0.0 if window.late is None else window.completed * (1 - window.late)
    return SeenWindow(
        until=rfc3339(window.at_s),
        requests=round(window.arrived),
        good=round(good),
        latency_milliseconds=None if window.p90_s is None else round(window.p90_s * 1000),
        used_milli=None if window.used_cpu_m is None else round(window.used_cpu_m),
        throttled_percent=None if window.throttled is None else round(window.throttled * 100),
    )


def told(wanted: ScalingDecision, window: Window | None, state: ScalingState) -> str:
    """A decision for people."""
    if window is None:
        return ""
    late = "nobody was answered" if window.late is None else f"{1 - window.late:.1%} of them within the objective"
    action = f"; {wanted.action}" if wanted.action else ""
    headroom = "" if state.headroom is None else f", headroom {state.headroom:.2f}"
    return f"{window.arrived / window.length_s:.1f} requests a second, {late}, {state.cpu_ms:.2f} CPU ms each{headroom}{action}"
