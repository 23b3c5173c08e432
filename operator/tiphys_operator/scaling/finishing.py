"""An intent that a predecessor left: whether it may still be done. Pure.

However it came into the status, and were it our own: bounds, rates and what is possible now have the last word. What they would change
is not done in part but decided anew.
"""

from __future__ import annotations

from dataclasses import replace

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import LastDecision, ScalingMemory, Size
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.scaling.limits import Limits, WishHistory, rated
from tiphys_operator.scaling.decide import View, current_size
from tiphys_operator.scaling.room import Room, room
from tiphys_operator.scaling.shape import cpu_limits, history_of, replica_limits, steps

INTENT_LIVES_WINDOWS = 2
_SAME_STEP_S = 2.0
"""The status shows whole seconds of an intent's time, memory the milliseconds."""


def too_old(intent: LastDecision, spec: ScalingPolicySpec, now_s: float, shift_s: float) -> bool:
    """Whether the intent is not from the last two windows. `shift_s`: by how much the clock was set forward since it was written."""
    lives_s = INTENT_LIVES_WINDOWS * spec.interval_seconds
    try:
        age_s = now_s - (timestamp_s(intent.at) or 0.0) - shift_s
    except InvalidInput:
        return True
    return not -lives_s <= age_s <= lives_s


def allowed_now(spec: ScalingPolicySpec, memory: ScalingMemory, intent: LastDecision, view: View, now_s: float) -> bool:
    """Whether all of it may be done."""
    here, wanted, measured = current_size(view), intent.applied, view.measured
    last = measured.windows[-1] if measured.windows else None
    silent = measured.silent if measured.problem is None else ("nobody was measured",)  # then nothing shrinks
    space = room(spec, view.target, view.shape, view.pods, here.cpu_milli, view.place, memory.blocked, last, silent, now_s)
    return _replicas_allowed(spec, memory, intent, here, wanted, space, now_s) and _cpu_allowed(
        spec, memory, intent, here, wanted, space, now_s
    )


def _replicas_allowed(
    spec: ScalingPolicySpec, memory: ScalingMemory, intent: LastDecision, here: Size, wanted: Size, space: Room, now_s: float
) -> bool:
    if wanted.replicas == here.replicas:
        return True
    if spec.horizontal is None or not _open(space.mask.replicas_up, space.mask.replicas_down, here.replicas, wanted.replicas):
        return False
    if not space.bounds.min_replicas <= wanted.replicas <= space.bounds.max_replicas:
        return False
    step = wanted.replicas - intent.former.replicas
    return _in_rate(
        replica_limits(spec.horizontal), _without(history_of(memory.replicas), intent, step), here.replicas, wanted.replicas, now_s
    )


def _cpu_allowed(
    spec: ScalingPolicySpec, memory: ScalingMemory, intent: LastDecision, here: Size, wanted: Size, space: Room, now_s: float
) -> bool:
    if spec.vertical is None:
        return True  # sizes are not touched at all
    if wanted.cpu_milli == here.cpu_milli:
        return True
    if not _open(space.mask.cpu_up, space.mask.cpu_down, here.cpu_milli, wanted.cpu_milli):
        return False
    if not space.bounds.min_cpu_m <= wanted.cpu_milli <= space.bounds.max_cpu_m:
        return False
    step = steps(wanted.cpu_milli) - steps(intent.former.cpu_milli)
    history = _without(history_of(memory.cpu), intent, step)
    return _in_rate(cpu_limits(spec.vertical), history, steps(here.cpu_milli), steps(wanted.cpu_milli), now_s)


def _open(up: bool, down: bool, here: int, wanted: int) -> bool:
    return up if wanted > here else down


def _in_rate(limits: Limits, history: WishHistory, here: int, wanted: int, now_s: float) -> bool:
    return rated(limits, history, here, wanted, now_s) == wanted


def _without(history: WishHistory, intent: LastDecision, step: int) -> WishHistory:
    """Before this very step, which was entered when it was intended."""
    at_s = timestamp_s(intent.at) or 0.0
    own = next((m for m in reversed(history.changes) if m.value == step and abs(m.at_s - at_s) <= _SAME_STEP_S), None)
    return history if own is None else replace(history, changes=tuple(m for m in history.changes if m is not own))
