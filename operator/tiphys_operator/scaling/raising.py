"""Between two windows: where more arrives than fits and requests already wait, CPU grows in place, and nothing else changes. Pure.

A jump falls anywhere in a window, and a window that is over shows only the part of it that it caught. The newest two samples show it a
scrape later, and the queue says at once whether it matters. Whatever is raised here is undone or kept by the first window that began
afterwards: the one under way is mostly from before the jump, and would take it back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason
from tiphys_models.api.scaling_status import Blocked, LastDecision, ScalingMemory, Size
from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling.limits import clamp
from tiphys_models.scaling.settings import RULE
from tiphys_operator.scaling.decide import Outcome, View, current_size, milli_of, next_number, stepped
from tiphys_operator.scaling.room import room
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.series import Series
from tiphys_operator.scaling.shape import cpu_limits, history_of, size_in_force, steps

RAISED = "Backlog"
"""The value in `status.lastDecision.reasons` for a raise between two windows."""
RAISE = "raise"
"""The value in `status.lastDecision.agent` for a raise: no agent decided it, whichever decides the windows."""
LOOKS_A_WINDOW = 5
LEAST_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What the newest samples say."""

    at_s: float
    rate: float
    """Requests a second that arrived between the last two samples of every pod."""
    in_flight: float
    """Taken and not yet answered."""


def look_every_s(spec: ScalingPolicySpec) -> float:
    """Seconds between two looks; also the time in which what waits should be served."""
    return max(spec.interval_seconds / LOOKS_A_WINDOW, LEAST_LOOK_S)


def glimpse(
    completed: Sequence[Series], in_flight: Sequence[Series], pod_label: str, running: Collection[str], after_s: float
) -> Glimpse | None:
    """The newest samples of the running pods; None if none is newer than the last window's end, or nothing can be told from them."""

    def fresh(series: Sequence[Series]) -> list[Series]:
        mine = [s for s in series if not pod_label or s.labels.get(pod_label) in running]
        return [s for s in mine if s.usable and s.times_s[-1] > after_s]

    flying = fresh(in_flight)
    changes = [change for s in fresh(completed) if (change := _counted(s)) is not None]
    if not flying or not changes:
        return None
    rate = math.fsum(changes) + math.fsum(_drift(s) for s in flying)
    return Glimpse(max(s.times_s[-1] for s in flying), max(rate, 0.0), math.fsum(s.values[-1] for s in flying))


def overrun(spec: ScalingPolicySpec, view: View, seen: Glimpse, cpu_ms: float) -> bool:
    """Whether the present size neither serves what waits within the objective nor keeps up with what comes.

    A queue alone is no reason: behind something else that is slow it grows, too, and CPU would not help.
    """
    capacity_m = _ready(view) * size_in_force(view.pods, view.shape)
    waits = seen.in_flight * cpu_ms > capacity_m * spec.objective.latency_milliseconds / 1000
    return waits and seen.rate * cpu_ms > capacity_m


def raised(policy: ScalingSeen, spec: ScalingPolicySpec, view: View, seen: Glimpse, now_s: float) -> Outcome | None:
    """The raise, within the limits, bounds and masks of a window; None if there is nothing to raise, or they leave nothing of it."""
    memory, last = policy.status.memory, policy.status.last_decision
    cpu_ms = known_cpu_ms(policy, spec)
    if spec.vertical is None or last is None or cpu_ms is None or not overrun(spec, view, seen, cpu_ms):
        return None
    here, target_s = current_size(view), spec.objective.latency_milliseconds / 1000
    # half the objective's worth is in flight where all is well
    waiting = max(seen.in_flight - seen.rate * target_s / 2, 0.0)
    need_m = (seen.rate * RULE.headroom + waiting / look_every_s(spec)) * cpu_ms
    wanted_m = math.ceil(need_m / _ready(view) + RULE.spare_m)
    space = room(spec, view.target, view.shape, view.pods, here.cpu_milli, view.place, memory.blocked, None, (), now_s)
    found = clamp(cpu_limits(spec.vertical), history_of(memory.cpu), steps(here.cpu_milli), steps(wanted_m), now_s)
    clamped = here.model_copy(update={"cpu_milli": milli_of(found, here)})
    applied_m = min(clamped.cpu_milli, space.bounds.max_cpu_m) if space.mask.cpu_up else here.cpu_milli
    if applied_m <= here.cpu_milli:
        return None
    applied = here.model_copy(update={"cpu_milli": applied_m})
    masked = applied != clamped
    decision = LastDecision(
        number=next_number(last),
        at=rfc3339(now_s),
        phase=DecisionPhase.INTENDED,
        agent=RAISE,
        window=last.window,
        former=here,
        wanted=Size(replicas=here.replicas, cpu_milli=wanted_m),
        clamped=clamped,
        applied=applied,
        masked=list(space.masked),
        reasons=[RAISED, str(found.reason), *(["ByMask"] if masked else [])],
        message=f"{seen.in_flight:.0f} requests wait, {seen.rate:.1f} a second arrive, {cpu_ms:.2f} CPU ms each",
    )
    # the step counts in the rates of its period; the wish is not remembered, so that later windows are free to want less
    memory = _kept_for_a_window(stepped(memory, here, applied, now_s), applied_m, now_s + spec.interval_seconds)
    return Outcome(decision, memory, None, (found.reason,), masked)


def _kept_for_a_window(memory: ScalingMemory, cpu_m: int, until_s: float) -> ScalingMemory:
    entry = Blocked(move="cpu-down", bound=cpu_m, reason=str(MaskReason.JUST_RAISED), until=round(until_s, 3))
    return memory.model_copy(update={"blocked": [*(b for b in memory.blocked if b.reason != entry.reason), entry][-8:]})


def known_cpu_ms(policy: ScalingSeen, spec: ScalingPolicySpec) -> float | None:
    """CPU milliseconds of a request, as the spec or the last window says."""
    known_us = spec.agent.request_cpu_microseconds or policy.status.memory.request_cpu_microseconds
    return None if known_us is None else known_us / 1000


def _ready(view: View) -> int:
    return max(sum(pod.ready for pod in view.pods), 1)


def _counted(series: Series) -> float | None:
    """Pace of a counter over its last two samples."""
    if len(series.times_s) < 2:
        return None
    (begin_s, end_s), (before, after) = series.times_s[-2:], series.values[-2:]
    return (after - before if after >= before else after) / (end_s - begin_s)


def _drift(series: Series) -> float:
    """Pace of a gauge over its last two samples; a pod that is new began with nothing in flight, nobody knows since when."""
    if len(series.times_s) < 2:
        return 0.0
    (begin_s, end_s), (before, after) = series.times_s[-2:], series.values[-2:]
    return (after - before) / (end_s - begin_s)
