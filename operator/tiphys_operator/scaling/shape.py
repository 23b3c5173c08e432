"""How a CPU size is written into a workload's pods, and the limits of a policy in the units of the clamps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tiphys_models.api.scaling_policy import CPU_STEP_MILLI, Horizontal, ScalingRules, Vertical
from tiphys_models.api.scaling_status import LimitsMemory, RememberedValue
from tiphys_models.scaling.limits import DOWN_CPU, DOWN_PODS, UP_CPU, UP_PODS, Direction, Limits, Mark, Rate, WishHistory
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.workload import Target


@dataclass(frozen=True, slots=True)
class Shape:
    """One container's CPU: the limit is decided, the request keeps the ratio it has in the template."""

    container: str
    limit_m: int
    """The CPU limit in the template."""
    request_m: int

    def request(self, limit_m: int) -> int:
        """The CPU request for a limit. They are equal only if the template's are: the pod's QoS class must not change."""
        if self.request_m >= self.limit_m:
            return limit_m
        return max(1, min(limit_m - 1, limit_m * self.request_m // self.limit_m))


def shape_of(target: Target, vertical: Vertical | None) -> Shape | str:
    """The CPU shape of the target's template, or the reason why there is none."""
    container = vertical.container if vertical is not None else None
    found = target.container(container)
    if found is None:
        return f"the pod template has no container {container}"
    if found.limit_m:
        return Shape(found.name, found.limit_m, found.limit_m if found.request_m is None else found.request_m)
    if vertical is None and found.request_m:
        return Shape(found.name, found.request_m, found.request_m)
    return f"container {found.name} has no CPU limit: set resources.limits.cpu in the template, it says what a request is to a limit"


def size_in_force(pods: Iterable[ScaledPod], shape: Shape) -> int:
    """The limit that most pods have, the larger of two; that of the template while there are none."""
    limits = Counter(c.limit_m for pod in pods if (c := pod.container(shape.container)) is not None and c.limit_m)
    return max(limits, key=lambda limit: (limits[limit], limit), default=shape.limit_m) or shape.limit_m


def steps(cpu_m: int) -> int:
    """Millicores in the clamps' units, rounded up."""
    return -(-cpu_m // CPU_STEP_MILLI)


def replica_limits(horizontal: Horizontal) -> Limits:
    """The policy's limits on replicas, in pods."""
    behavior = horizontal.behavior
    return Limits(
        horizontal.min_replicas,
        horizontal.max_replicas,
        _direction(behavior.scale_up, UP_PODS, 1),
        _direction(behavior.scale_down, DOWN_PODS, 1),
    )


def cpu_limits(vertical: Vertical) -> Limits:
    """The policy's limits on CPU, in steps of CPU."""
    behavior = vertical.behavior
    return Limits(
        steps(vertical.min_cpu_milli),
        vertical.max_cpu_milli // CPU_STEP_MILLI,
        _direction(behavior.scale_up, UP_CPU, CPU_STEP_MILLI),
        _direction(behavior.scale_down, DOWN_CPU, CPU_STEP_MILLI),
    )


def history_of(memory: LimitsMemory) -> WishHistory:
    """What the clamps remember, from status."""
    lowest, highest, changes = (tuple(Mark(m.at, m.value) for m in marks) for marks in (memory.lowest, memory.highest, memory.changes))
    return WishHistory(lowest, highest, changes)


def memory_of(history: WishHistory) -> LimitsMemory:
    """The same into status."""
    lowest, highest, changes = (
        # milliseconds: what came back from the API server must equal what was sent
        [RememberedValue(at=round(m.at_s, 3), value=m.value) for m in marks]
        for marks in (history.lowest, history.highest, history.changes)
    )
    return LimitsMemory(lowest=lowest, highest=highest, changes=changes)


def _direction(rules: ScalingRules, default: Direction, unit: int) -> Direction:
    rates = tuple(Rate(r.type, max(r.value // unit, 1) if r.type == "Units" else r.value, float(r.period_seconds)) for r in rules.policies)
    window = rules.stabilization_window_seconds
    return Direction(
        window_s=default.window_s if window is None else float(window),
        rates=rates or default.rates,
        select=rules.select_policy,
        tolerance=default.tolerance if rules.tolerance_percent is None else rules.tolerance_percent / 100,
    )
