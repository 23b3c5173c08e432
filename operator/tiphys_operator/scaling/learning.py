"""What windows teach of a service: CPU a request, headroom, delays. Out of a status's memory, through `control.step`, and back. Pure.

Each window teaches once: `until` says which ones did. A successor takes the recent ones that came after it in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import ScalingMemory
from tiphys_models.scaling.control import Control, Learned, WindowReading, step
from tiphys_models.scaling.headroom import BACK, REMEMBERED, START, Headroom
from tiphys_models.scaling.request_cpu import ENOUGH, HALF_LIFE, JUMP_SIGMAS, LEAST_CLIP, LEAST_JUMP, RequestCPU
from tiphys_models.scaling.standing import Delays
from tiphys_models.scaling.state import STALE_WINDOWS, Window
from tiphys_operator.scaling.measured import Measured, request_cpu_ms

_FADING_WINDOWS = 13
"""So many windows' requests are remembered at most, where each counts by the half-life: a sum beyond that is none of ours."""
_SLOWLY = 0.2
_UNCONTROLLED = Control(headroom=False)


@dataclass(frozen=True, slots=True)
class Lesson:
    """What there is to learn from at the end of a window."""

    measured: Measured
    rates: Sequence[float]
    """Requests a second of past windows, oldest first; the last one is the newest window's."""
    now_s: float
    starts: Sequence[float] = ()
    """Seconds that pods took which have become ready."""
    control: Control | None = None
    """What the agent asks to have learned for it beside CPU a request."""
    its_own: Callable[[Window], bool] = lambda window: True
    """Whether the agent's sizes were in force in a window: only then do its misses say anything of its headroom."""
    full: bool = False
    """Whether bounds left nothing to grow: then no headroom prevents a miss."""


def known_of(memory: ScalingMemory, spec: ScalingPolicySpec) -> Learned:
    """What a status says was learned. `request.cpu_ms` is NaN where nobody knows."""
    m = memory.learned or LearnedMemory()
    declared_us = None if m.measured else spec.agent.request_cpu_microseconds
    prior_us = declared_us or memory.request_cpu_microseconds
    prior_ms = math.nan if prior_us is None else prior_us / 1000
    request = RequestCPU(
        cpu_ms=m.used_milliseconds / m.requests if m.requests >= ENOUGH else prior_ms,
        used_ms=m.used_milliseconds,
        completed=m.requests,
        variance=LEAST_CLIP**2 if m.variance is None else m.variance,
        last_used_ms=m.last_used_milliseconds,
        last_completed=m.last_requests,
        last_off=m.last_off,
    )
    headroom = Headroom(START if m.headroom is None else m.headroom, tuple(m.former_headroom), m.exempt_windows, m.excused)
    return Learned(request, headroom, Delays(m.start_seconds, m.lag_seconds))


def request_ms(known: Learned, spec: ScalingPolicySpec, memory: ScalingMemory, windows: Sequence[Window]) -> float | None:
    """CPU milliseconds a request to size by; None if nobody knows yet."""
    if memory.learned is not None and memory.learned.measured and not math.isnan(known.request.cpu_ms):
        return float(f"{known.request.cpu_ms:.4g}")  # sizes are rounded up: chance in the fifth digit would move them
    if (declared_us := spec.agent.request_cpu_microseconds) is not None:
        return declared_us / 1000
    # windows of which something is missing teach nothing, but are better than no number at all
    known_ms = memory.request_cpu_microseconds / 1000 if memory.request_cpu_microseconds else None
    return request_cpu_ms(windows, spec.objective.percentile / 100, known_ms)


def taught(memory: ScalingMemory, spec: ScalingPolicySpec, lesson: Lesson) -> tuple[Learned, ScalingMemory]:
    """After the windows that have not taught yet."""
    former = memory.learned or LearnedMemory()
    windows = lesson.measured.windows
    new = _new(windows, former.until)
    known = _bounded(known_of(memory, spec), windows)
    if new and former.until:
        known = _aged(known, (new[0].at_s - former.until) / new[0].length_s - 1)
    percentile = spec.objective.percentile / 100
    for window in new:
        newest = window is windows[-1]
        if newest and lesson.measured.partial:
            continue
        # before anything was learned here, others' sizes were in force
        own = lesson.control if former.until and lesson.its_own(window) else None
        reading = _reading(known.request, window, lesson, percentile, counts=newest and not lesson.full)
        known = step(known, reading, own or _UNCONTROLLED, percentile)
    known = replace(known, delays=_delays(known.delays, lesson, new, first=not former.until))
    until = new[-1].at_s if new else former.until
    measured = former.measured or known.request.measured
    kept = _remembered(known, until, measured=measured, controlled=lesson.control is not None or former.headroom is not None)
    return known, memory.model_copy(update={"learned": kept})


def _new(windows: Sequence[Window], until: float) -> Sequence[Window]:
    if not windows or until <= windows[-1].at_s + windows[-1].length_s:
        return [w for w in windows if w.at_s > until]
    return windows[-1:]  # no window ends then: whoever wrote that, learning goes on


def _reading(request: RequestCPU, window: Window, lesson: Lesson, percentile: float, *, counts: bool) -> WindowReading:
    """A window as it teaches. `counts`: whether its miss would be lack of headroom; a good one always counts."""
    missed = window.late is not None and window.late > 1 - percentile + 1e-9
    # of windows before a restart misses were written at once, or nobody decided; where nobody is answered, CPU is not what is missing
    late = window.late if not missed or (counts and window.completed > 0) else None
    used_m = None if missed and _given_up(request, window) else window.used_cpu_m
    newest = lesson.measured.windows[-1]
    back = 1 + round((newest.at_s - window.at_s) / window.length_s)
    before = [rate for rate in lesson.rates[:-back] if not math.isnan(rate)]
    return WindowReading(window.length_s, window.arrived / window.length_s, window.completed, late, used_m, before[-2:])


def _given_up(request: RequestCPU, window: Window) -> bool:
    """Whether requests of a missed window took so much less CPU than is known that many were given up: they count as completed."""
    if window.used_cpu_m is None or not window.completed > 0:
        return False
    least = 1 - max(LEAST_JUMP, JUMP_SIGMAS * math.sqrt(request.variance))
    return window.used_cpu_m * window.length_s / window.completed < least * request.cpu_ms


def _bounded(known: Learned, windows: Sequence[Window]) -> Learned:
    """With sums that windows like these can have come to: others would be believed for hours."""
    if not windows:
        return known
    request = known.request
    most = _FADING_WINDOWS * max(w.completed for w in windows)
    return known if request.completed <= max(most, ENOUGH) else replace(known, request=_faded(request, most / request.completed))


def _aged(known: Learned, windows: float) -> Learned:
    """After so many windows that nobody measured: sums fade, and what the last windows were is over. Headroom stays, as noise does."""
    if windows < 0.5:
        return known
    former = known.headroom.former if windows < BACK else ()
    exempt = max(known.headroom.exempt - round(windows), 0)
    excused = known.headroom.excused * (1 - 1 / REMEMBERED) ** windows
    headroom = replace(known.headroom, former=former, exempt=exempt, excused=excused)
    request = replace(_faded(known.request, 2.0 ** (-windows / HALF_LIFE)), last_off=0)
    return replace(known, request=request, headroom=headroom)


def _faded(request: RequestCPU, share: float) -> RequestCPU:
    """With sums that count so much less, but enough to be known."""
    if not request.measured:
        return request
    share = max(share, ENOUGH / request.completed)
    completed = max(request.completed * share, ENOUGH)
    return replace(request, used_ms=request.cpu_ms * completed, completed=completed)


def _delays(known: Delays, lesson: Lesson, new: Sequence[Window], *, first: bool) -> Delays:
    for start_s in lesson.starts:
        known = known.started(start_s)
    if not new:
        return known
    lag_s = min(max(lesson.now_s - new[-1].at_s, 0.0), STALE_WINDOWS * new[-1].length_s)
    return replace(known, lag_s=lag_s if first else known.lag_s + _SLOWLY * (lag_s - known.lag_s))


def _remembered(known: Learned, until: float, *, measured: bool, controlled: bool) -> LearnedMemory:
    request, headroom, delays = known.request, known.headroom, known.delays
    return LearnedMemory(
        until=round(until, 3),
        measured=measured,
        requests=_short(request.completed),
        used_milliseconds=_short(request.used_ms),
        variance=_short(request.variance),
        last_requests=_short(request.last_completed),
        last_used_milliseconds=_short(request.last_used_ms),
        last_off=request.last_off,
        headroom=_short(headroom.value) if controlled else None,
        former_headroom=[_short(value) for value in headroom.former],
        exempt_windows=headroom.exempt,
        excused=_short(headroom.excused),
        start_seconds=None if delays.start_s is None else round(delays.start_s, 1),
        lag_seconds=round(delays.lag_s, 1),
    )


def _short(value: float) -> float:
    return float(f"{value:.7g}")
