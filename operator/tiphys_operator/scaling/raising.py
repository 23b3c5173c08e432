"""Between two windows: where more arrives than fits and requests already wait, CPU grows in place. Pure.

Pods grow in number with it for an agent that asks for controlled looks (`rule+`); for others nothing else changes.

A jump falls anywhere in a window, and a window that is over shows only the part of it that it caught. The newest two samples show it a
scrape later, and the queue says at once whether it matters. Whatever is raised here is undone or kept by the first window that began
afterwards: the one under way is mostly from before the jump, and would take it back.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tiphys_models.api.scaling_policy import CPU_STEP_MILLI, ScalingPolicySpec
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason
from tiphys_models.api.scaling_status import Blocked, LastDecision, ScalingMemory, Size
from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling import looks
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.headroom import START
from tiphys_models.scaling.limits import LimitReason, clamp
from tiphys_models.scaling.looks import LookReading, Need, Ordered
from tiphys_models.scaling.rule_plus import SETTING
from tiphys_models.scaling.settings import RULE
from tiphys_operator.scaling.decide import Outcome, View, current_size, milli_of, next_number, stepped
from tiphys_operator.scaling.learning import known_of
from tiphys_operator.scaling.room import room
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.series import Series
from tiphys_operator.scaling.shape import cpu_limits, history_of, replica_limits, size_in_force, steps

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


def overrun(spec: ScalingPolicySpec, view: View, seen: Glimpse, cpu_ms: float, control: Control | None = None) -> bool:
    """Whether the present size neither serves what waits within the objective nor keeps up with what comes.

    A queue alone is no reason: behind something else that is slow it grows, too, and CPU would not help.
    """
    if control is not None and control.looks:
        return looks.overrun(LookReading(seen.rate, seen.in_flight), _ordered(spec, view), _need(spec, cpu_ms, START))
    capacity_m = _ready(view) * size_in_force(view.pods, view.shape)
    waits = seen.in_flight * cpu_ms > capacity_m * spec.objective.latency_milliseconds / 1000
    return waits and seen.rate * cpu_ms > capacity_m


def raised(
    policy: ScalingSeen, spec: ScalingPolicySpec, view: View, seen: Glimpse, now_s: float, control: Control | None = None
) -> Outcome | None:
    """The raise, within the limits, bounds and masks of a window; None if there is nothing to raise, or they leave nothing of it.

    `control`: what the agent asks for whose turn it is.
    """
    memory, last = policy.status.memory, policy.status.last_decision
    cpu_ms = known_cpu_ms(policy, spec)
    if spec.vertical is None or last is None or cpu_ms is None or not overrun(spec, view, seen, cpu_ms, control):
        return None
    wanted = _wanted(spec, view, seen, cpu_ms, known_of(memory, spec).headroom.value if control is not None and control.looks else None)
    here = current_size(view)
    clamped, reasons = _clamped(spec, memory, here, wanted, now_s)
    space = room(spec, view.target, view.shape, view.pods, here.cpu_milli, view.place, memory.blocked, None, (), now_s)
    applied = Size(
        replicas=max(min(clamped.replicas, space.bounds.max_replicas), here.replicas) if space.mask.replicas_up else here.replicas,
        cpu_milli=max(min(clamped.cpu_milli, space.bounds.max_cpu_m), here.cpu_milli) if space.mask.cpu_up else here.cpu_milli,
    )
    if applied == here:
        return None
    masked = applied != clamped
    decision = LastDecision(
        number=next_number(last),
        at=rfc3339(now_s),
        phase=DecisionPhase.INTENDED,
        agent=RAISE,
        window=last.window,
        former=here,
        wanted=wanted,
        clamped=clamped,
        applied=applied,
        masked=list(space.masked),
        reasons=[RAISED, *map(str, reasons), *(["ByMask"] if masked else [])],
        message=f"{seen.in_flight:.0f} requests wait, {seen.rate:.1f} a second arrive, {cpu_ms:.2f} CPU ms each",
    )
    # the step counts in the rates of its period; the wish is not remembered, so that later windows are free to want less
    memory = _kept_for_a_window(stepped(memory, here, applied, now_s), applied, now_s + spec.interval_seconds, pods=control is not None)
    return Outcome(decision, memory, None, reasons, masked)


def _wanted(spec: ScalingPolicySpec, view: View, seen: Glimpse, cpu_ms: float, headroom: float | None) -> Size:
    """The size that meets what comes and what waits; with controlled `headroom` in pods, too."""
    here, target_s = current_size(view), spec.objective.latency_milliseconds / 1000
    if headroom is not None:
        need = _need(spec, cpu_ms, headroom)
        found = looks.raised(LookReading(seen.rate, seen.in_flight), _ordered(spec, view), need, look_every_s(spec))
        return here if found is None else Size(replicas=found[0], cpu_milli=math.ceil(found[1]))
    # half the objective's worth is in flight where all is well
    waiting = max(seen.in_flight - seen.rate * target_s / 2, 0.0)
    need_m = (seen.rate * RULE.headroom + waiting / look_every_s(spec)) * cpu_ms
    return Size(replicas=here.replicas, cpu_milli=math.ceil(need_m / _ready(view) + RULE.spare_m))


def _clamped(
    spec: ScalingPolicySpec, memory: ScalingMemory, here: Size, wanted: Size, now_s: float
) -> tuple[Size, tuple[LimitReason, ...]]:
    """A wish to grow within the limits of a window; it is not remembered."""
    clamped, reasons = here, list[LimitReason]()
    if spec.horizontal is not None and wanted.replicas > here.replicas:
        pods = clamp(replica_limits(spec.horizontal), history_of(memory.replicas), here.replicas, wanted.replicas, now_s)
        clamped = clamped.model_copy(update={"replicas": pods.value})
        reasons.append(pods.reason)
    if spec.vertical is not None:
        cpu = clamp(cpu_limits(spec.vertical), history_of(memory.cpu), steps(here.cpu_milli), steps(wanted.cpu_milli), now_s)
        clamped = clamped.model_copy(update={"cpu_milli": milli_of(cpu, here)})
        reasons.append(cpu.reason)
    return clamped, tuple(reasons)


def _ordered(spec: ScalingPolicySpec, view: View) -> Ordered:
    """What was asked for last: a resize under way counts as done, so that it is not undone."""
    here = current_size(view)
    most = max(spec.horizontal.max_replicas, here.replicas) if spec.horizontal is not None else here.replicas
    largest_m = max(spec.vertical.max_cpu_milli, here.cpu_milli) if spec.vertical is not None else here.cpu_milli
    return Ordered(here.replicas, _ready(view), here.cpu_milli, most, largest_m, CPU_STEP_MILLI)


def _need(spec: ScalingPolicySpec, cpu_ms: float, headroom: float) -> Need:
    return Need(cpu_ms, headroom, spec.objective.latency_milliseconds / 1000, SETTING.pod_m, SETTING.spare_m)


def _kept_for_a_window(memory: ScalingMemory, applied: Size, until_s: float, *, pods: bool) -> ScalingMemory:
    reason, until = str(MaskReason.JUST_RAISED), round(until_s, 3)
    kept = {"cpu-down": applied.cpu_milli} | ({"replicas-down": applied.replicas} if pods else {})
    entries = [Blocked(move=move, bound=bound, reason=reason, until=until) for move, bound in kept.items()]
    return memory.model_copy(update={"blocked": [*(b for b in memory.blocked if b.reason != reason), *entries][-8:]})


def known_cpu_ms(policy: ScalingSeen, spec: ScalingPolicySpec) -> float | None:
    """CPU milliseconds of a request: those that the last window was sized by, or what was declared."""
    known_us = policy.status.memory.request_cpu_microseconds or spec.agent.request_cpu_microseconds
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
