"""Which windows are news: a status is written when something in it is new, and what only moves with time waits for the next write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.api.scaling_status import LastDecision, LimitsMemory, MeasuredWindow, RememberedValue, ScalingMemory, ScalingPolicyStatus
from tiphys_operator.scaling.seen import ScalingSeen

REFRESH_S = 60.0
"""Figures that moved are written so seldom, and no sooner than after four windows."""
REFRESH_WINDOWS = 4
_MOVED = 0.1
"""Share by which a figure moves before it is another one: requests arrive at random."""
_HEADROOM_MOVED, _EXCUSED_MOVED = 0.05, 0.005
_MOVES: dict[str, Any] = {
    "number": 0, "at": "", "state_digest": "", "window": None, "wanted": None, "clamped": None, "would": None,
    "values": [], "masked": [], "reasons": [], "message": "",
}  # fmt: skip
"""What of a decision may differ from one window to the next although nothing is decided."""


@dataclass(slots=True)
class Unwritten:
    """The status of one policy that is newer than the one that stands in its object."""

    status: ScalingPolicyStatus | None = None
    stands: ScalingPolicyStatus | None = None
    written_s: float | None = None
    """When this process last wrote it, monotonic."""

    def latest(self, policy: ScalingSeen) -> ScalingSeen:
        """The policy with what was decided since its status was written; whatever else somebody wrote there meanwhile counts."""
        if self.status is None:
            return policy
        if policy.status != self.stands:
            self.status = self.stands = None
            return policy
        return replace(policy, status=self.status, stands=policy.status)

    def kept(self, policy: ScalingSeen, status: ScalingPolicyStatus, now_s: float) -> ScalingSeen | None:
        """The policy with a status that need not be written; None if it must be."""
        stands, spec = policy.stands or policy.status, policy.spec
        if spec is None:
            return policy if stands == status else None
        age_s = None if self.written_s is None else now_s - self.written_s
        refresh = age_s is None or age_s >= min(REFRESH_S, REFRESH_WINDOWS * spec.interval_seconds)
        tolerated = 1 - spec.objective.percentile / 100
        if is_news(stands, status, tolerated) or (refresh and has_moved(stands, status)):
            return None
        self.status, self.stands = status, stands
        return replace(policy, status=status, stands=stands)

    def written(self, now_s: float) -> None:
        """The newest status stands in the object."""
        self.status, self.stands, self.written_s = None, None, now_s


def is_news(before: ScalingPolicyStatus, after: ScalingPolicyStatus, tolerated: float) -> bool:
    """Whether people, or a successor of this process, must know at once. `tolerated`: share of requests that may be late."""
    if _lasting(before) != _lasting(after) or _outcome(before.last_decision, tolerated) != _outcome(after.last_decision, tolerated):
        return True
    return _wider(before, after) or bool(_entries(after.memory) - _entries(before.memory))


def has_moved(before: ScalingPolicyStatus, after: ScalingPolicyStatus) -> bool:
    """Whether figures say something else than those that stand there; times alone do not."""
    one, other = before.last_decision, after.last_decision
    if (one is None) != (other is None):
        return True
    if one is not None and other is not None:
        if any(getattr(one, part) != getattr(other, part) for part in ("wanted", "clamped", "masked", "reasons")):
            return True
        if _figures_moved(one.window, other.window):
            return True
    if [c.message for c in before.conditions] != [c.message for c in after.conditions] or before.agent != after.agent:
        return True
    return _memory_moved(before.memory, after.memory) or before.comparison != after.comparison


def _lasting(status: ScalingPolicyStatus) -> tuple[object, ...]:
    memory, agent = status.memory, status.agent
    return (
        status.observed_generation, status.current, status.desired, status.pods,
        None if agent is None else (agent.model, agent.digest, agent.config_map),
        [(c.type, c.status, c.reason, c.observed_generation) for c in status.conditions],
        memory.request_cpu_microseconds is None, memory.learned is None, memory.rolled_back,
    )  # fmt: skip


def _entries(memory: ScalingMemory) -> set[tuple[object, ...]]:
    """What is remembered until its time is over; that it is over need not be written."""
    changes = {(name, m.at, m.value) for name, of in (("replicas", memory.replicas), ("cpu", memory.cpu)) for m in of.changes}
    blocked = {("blocked", b.move, b.bound, b.reason, b.until, b.tries) for b in memory.blocked}
    return {*changes, *blocked, *(("overridden", at) for at in memory.overridden)}


def _outcome(decision: LastDecision | None, tolerated: float) -> tuple[object, ...]:
    """What was decided and done; and whether the window kept its objective."""
    if decision is None:
        return ()
    window = decision.window
    kept = None if window is None or not window.requests else window.requests - window.good <= tolerated * window.requests
    return decision.model_copy(update=_MOVES), kept


def _wider(before: ScalingPolicyStatus, after: ScalingPolicyStatus) -> bool:
    """Whether wishes are remembered that stabilise more than those that stand there: a successor may not shrink sooner."""
    pairs = ((before.memory.replicas, after.memory.replicas), (before.memory.cpu, after.memory.cpu))
    return any(_highest(new) > _highest(old) or _lowest(new) < _lowest(old) for old, new in pairs)


def _highest(found: LimitsMemory) -> int:
    return max((m.value for m in found.highest), default=-1)


def _lowest(found: LimitsMemory) -> int:
    return min((m.value for m in found.lowest), default=2**62)


def _memory_moved(before: ScalingMemory, after: ScalingMemory) -> bool:
    if _far(before.request_cpu_microseconds, after.request_cpu_microseconds) or _entries(before) != _entries(after):
        return True
    if _learned_moved(before.learned or LearnedMemory(), after.learned or LearnedMemory()):
        return True
    pairs = ((before.replicas, after.replicas), (before.cpu, after.cpu))
    return any(_marks_moved(getattr(a, name), getattr(b, name)) for a, b in pairs for name in ("lowest", "highest"))


def _learned_moved(before: LearnedMemory, after: LearnedMemory) -> bool:
    """Sums move with every window; a successor takes the recent ones from Prometheus."""
    headroom = abs((after.headroom or 0.0) - (before.headroom or 0.0)) > _HEADROOM_MOVED
    measured = before.measured != after.measured
    excused = abs(after.excused - before.excused) > _EXCUSED_MOVED
    starts = [None if start_s is None else round(start_s) for start_s in (before.start_seconds, after.start_seconds)]
    return headroom or measured or excused or _far(*starts)


def _marks_moved(before: Sequence[RememberedValue], after: Sequence[RememberedValue]) -> bool:
    """The newest mark's time is left out: whoever reads it takes it for as new as the process that wrote it was alive."""
    return [m.value for m in before] != [m.value for m in after] or before[:-1] != after[:-1]


def _figures_moved(before: MeasuredWindow | None, after: MeasuredWindow | None) -> bool:
    if before is None or after is None:
        return before is not after
    if (before.good == before.requests) != (after.good == after.requests):
        return True
    parts = ("requests", "good", "latency_milliseconds", "used_milli", "throttled_percent")
    return any(_far(getattr(before, part), getattr(after, part)) for part in parts)


def _far(before: int | None, after: int | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > _MOVED * max(abs(before), 1)
