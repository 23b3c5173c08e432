"""One window of one policy: what the agent wants, what limits and masks leave of it, and what must be remembered. It talks to nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiphys_models.api.scaling_policy import CPU_STEP_MILLI, ScalingPolicySpec
from tiphys_models.api.scaling_reasons import DecisionPhase, MaskReason, ScalingReason
from tiphys_models.api.scaling_status import Blocked, LastDecision, ScalingMemory, Size
from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling.bounds import allowed_decision
from tiphys_models.scaling.control import Control, Learned
from tiphys_models.scaling.limits import Clamped, LimitReason, clamp
from tiphys_models.scaling.protocol import ScalingAgent, decide
from tiphys_models.scaling.rule_plus import control_of
from tiphys_models.scaling.state import Objective, ScalingDecision, ScalingState, Window
from tiphys_models.seats.modes import Mode, mode_of
from tiphys_models.seats.seat import Answered, Said, Seat
from tiphys_models.seats.shares import Block, block_of
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.believed import BLOCKED_MAX_S
from tiphys_operator.scaling.conflicts import Conflict
from tiphys_operator.scaling.learning import Lesson, request_ms, taught
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.resizing import sizing
from tiphys_operator.scaling.room import Place, Room, room
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.shape import Shape, cpu_limits, history_of, memory_of, replica_limits, size_in_force, steps
from tiphys_operator.scaling.wording import shown, told
from tiphys_operator.scaling.workload import Target

BLOCKED_FIRST_S = 60.0
_FORGOTTEN_S = 3600.0
_VALUES_MAX = 64
_NUMBER_MAX = 2**53


@dataclass(frozen=True, slots=True)
class View:
    """Everything that a decision may know."""

    target: Target
    shape: Shape
    pods: Sequence[ScaledPod]
    measured: Measured
    rates: tuple[float, ...]
    """Requests a second of past windows, oldest first; the last one is the newest window's."""
    place: Place
    conflict: Conflict | None = None
    starts: tuple[float, ...] = ()
    """Seconds that pods took which have become ready since the last window."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question that agent and rule are asked alike: a state, and the limits that hold for either's answer."""

    spec: ScalingPolicySpec
    record: LastDecision
    """What is written down already, as if the window came to nothing."""
    here: Size
    state: ScalingState
    space: Room
    memory: ScalingMemory
    now_s: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """One decider's answer, and what limits and masks leave of it."""

    wanted: ScalingDecision
    clamped: Size
    applied: Size
    memory: ScalingMemory
    limits: tuple[LimitReason, ...]
    """Reasons that limited replicas and CPU, as far as the policy scales them."""
    masked: bool
    """Whether something that was not possible kept it from growing, or from shrinking."""


@dataclass(frozen=True, slots=True)
class Deciders:
    """The agents that may decide a window."""

    rule: ScalingAgent
    agent: ScalingAgent | None = None
    """The one that the spec names; None if that is the rule itself."""
    barred: str = ""
    """Why the agent may not decide; empty: it may."""

    @property
    def due(self) -> ScalingAgent:
        """The agent that decides outside a control block."""
        return self.rule if self.agent is None or self.barred else self.agent

    @property
    def control(self) -> Control | None:
        """What the agent that the spec names asks to have learned for it."""
        return control_of(self.agent or self.rule)

    def seat(self, mode: Mode) -> Seat[Question, Proposal]:
        """The seat of both. A mode that changes nothing shows what the agent would do, so there the agent sits as in Active."""
        agent, barred = self.agent, self.barred

        def rule(question: Question) -> Said[Proposal]:
            return propose(question, self.rule)

        def learned(question: Question) -> Said[Proposal]:
            if agent is None or barred:
                return Said(None, agent.name if agent is not None else "", digest_of(agent), barred)
            return propose(question, agent)

        return Seat(rule, learned if agent is not None else None, "Canary" if mode == "Canary" else "Active")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to write down, and whether to act on it."""

    decision: LastDecision
    memory: ScalingMemory
    window: Window | None
    limits: tuple[LimitReason, ...] = ()
    """Reasons that limited replicas and CPU, as far as the policy scales them."""
    masked: bool = False
    """Whether something that was not possible kept it from growing, or from shrinking."""
    held: ScalingReason | None = None
    message: str = ""
    missing: tuple[str, ...] = ()
    """What was not measured, in words."""
    state: ScalingState | None = None
    """What was decided for; None if nobody was asked."""
    answered: Answered[Proposal] | None = None
    """The agent that decided, and what the other one would have done."""
    block: Block | None = None
    """The block of the canary that the decision lies in; None in other modes."""

    @property
    def changes(self) -> bool:
        """Whether something is to be done."""
        return self.decision.phase == DecisionPhase.INTENDED

    @property
    def action(self) -> str:
        """A learned agent's, by name; empty where the rule decided."""
        return self.answered.answer.wanted.action if self.answered is not None else ""

    @property
    def agreed(self) -> bool | None:
        """Whether the other decider would have done the same; None if it has said nothing."""
        if self.answered is None or self.answered.would is None:
            return None
        return self.answered.would.applied == self.answered.answer.applied


def current_size(view: View) -> Size:
    """The size in force: replicas wanted by the workload, and CPU of its pods."""
    return Size(replicas=view.target.replicas, cpu_milli=size_in_force(view.pods, view.shape))


def decide_window(policy: ScalingSeen, spec: ScalingPolicySpec, deciders: Deciders, view: View, now_s: float) -> Outcome:
    """One decision; a window without information holds what is there."""
    asked = _asked(policy, spec, deciders, view, now_s)
    if isinstance(asked, Outcome):
        return asked
    mode, block = mode_of(spec.mode), block_at(policy, spec, now_s)
    answered = deciders.seat(mode).answer(asked, obeys=block is None or block.obeys)
    return _concluded(asked, answered, block, view, acts=_acts(policy, spec, view))


def block_at(policy: ScalingSeen, spec: ScalingPolicySpec, now_s: float) -> Block | None:
    """The block of a canary's time; None outside mode Canary."""
    canary, window_s = spec.canary, spec.interval_seconds
    if canary is None:
        return None
    return block_of(policy.uid, now_s, canary.block_windows * window_s, canary.wash_out_windows * window_s, canary.percent)


def propose(question: Question, agent: ScalingAgent) -> Said[Proposal]:
    """One decider's wish within limits and masks."""
    q = question
    wanted = decide(agent, q.state)
    clamped, memory, limits = clamped_size(q.spec, q.memory, q.here, wanted, q.now_s)
    kept = allowed_decision(q.state, replace(wanted, replicas=clamped.replicas, cpu_m=clamped.cpu_milli))
    applied = Size(replicas=kept.replicas, cpu_milli=kept.cpu_m)
    masked = applied != clamped or _at_bound(applied, q.space)
    return Said(Proposal(wanted, clamped, applied, memory, limits, masked), agent.name, digest_of(agent))


def digest_of(agent: object) -> str:
    """sha256 of an agent's weights; empty for rules."""
    return str(getattr(agent, "digest", ""))


def _acts(policy: ScalingSeen, spec: ScalingPolicySpec, view: View) -> bool:
    return spec.acts and view.conflict is None and not policy.paused


def _asked(policy: ScalingSeen, spec: ScalingPolicySpec, deciders: Deciders, view: View, now_s: float) -> Question | Outcome:
    """The question of a window, or why it has none."""
    memory, here = _aged(policy.status.memory, now_s), current_size(view)
    windows = view.measured.windows
    window = windows[-1] if windows else None
    record = LastDecision(
        number=next_number(policy.status.last_decision),
        at=rfc3339(now_s),
        phase=DecisionPhase.HELD,
        agent=deciders.due.name[:63],
        window=shown(window),
        former=here,
        applied=here,
    )
    known, memory = taught(memory, spec, _lesson(policy, spec, deciders, view, here, now_s))
    if view.measured.problem is not None:
        return _held(record, memory, window, view.measured.problem, view.measured.message)
    cpu_ms = request_ms(known, spec, memory, windows)
    if cpu_ms is None:
        why = "too few requests were measured to know what CPU one takes; spec.agent.requestCpuMicroseconds says it from the start"
        return _held(record, memory, window, ScalingReason.CAPACITY_UNKNOWN, why)
    memory = memory.model_copy(update={"request_cpu_microseconds": max(round(cpu_ms * 1000), 1)})
    memory = _too_large(_not_created(memory, view, spec, now_s), view, here, now_s)
    space = room(spec, view.target, view.shape, view.pods, here.cpu_milli, view.place, memory.blocked, window, view.measured.partial, now_s)
    state = _controlled(_state(policy, spec, view, here, space, cpu_ms, now_s), known, deciders.control)
    if state.stale:
        age_s = f"{now_s - window.at_s:.0f} s old" if window is not None else "missing"
        return _held(record, memory, window, ScalingReason.SAMPLES_STALE, f"the newest sample is {age_s}")
    return Question(spec, record, here, state, space, memory, now_s)


def _concluded(q: Question, answered: Answered[Proposal], block: Block | None, view: View, *, acts: bool) -> Outcome:
    """What to write down of an answer, and whether to act on it."""
    made, wanted = answered.answer, answered.answer.wanted
    window = view.measured.windows[-1] if view.measured.windows else None
    phase = DecisionPhase.RECOMMENDED if not acts else DecisionPhase.INTENDED if made.applied != q.here else DecisionPhase.DONE
    memory = stepped(made.memory, q.here, made.applied, q.now_s) if acts else made.memory
    decision = q.record.model_copy(
        update={
            "phase": phase,
            "agent": answered.by[:63],
            "outcome": answered.outcome,
            "outcome_reason": answered.reason[:63],
            "group": answered.group,
            "state_digest": hashlib.sha256(repr(q.state).encode()).hexdigest()[:16],
            "model_digest": answered.digest,
            "wanted": Size(replicas=max(wanted.replicas, 0), cpu_milli=max(wanted.cpu_m, 0)),
            "clamped": made.clamped,
            "applied": made.applied,
            "would": answered.would.applied if answered.would is not None else None,
            "values": [f"{name}={value:.4g}" for name, value in sorted(wanted.values.items(), key=lambda v: -v[1])][:_VALUES_MAX],
            "masked": list(q.space.masked),
            "reasons": [wanted.reason, *map(str, made.limits), *(["ByMask"] if made.masked else [])],
            "message": told(wanted, window, q.state),
        }
    )
    return Outcome(
        decision, memory, window, made.limits, made.masked,
        missing=view.measured.partial, state=q.state, answered=answered, block=block,
    )  # fmt: skip


def next_number(last: LastDecision | None) -> int:
    """Counted on; from 1 where the count cannot be ours, because the API server keeps no larger ones."""
    return last.number + 1 if last is not None and last.number < _NUMBER_MAX else 1


def refused(outcome: Outcome, move: str, reason: MaskReason, message: str, now_s: float) -> Outcome:
    """After the API server said no to a move: it stays undone, and is masked for twice as long as the last time."""
    decision, here = outcome.decision, outcome.decision.former
    replicas = move.startswith("replicas")
    update = {"replicas": here.replicas} if replicas else {"cpu_milli": here.cpu_milli}
    applied = decision.applied.model_copy(update=update)
    bound = here.replicas if replicas else here.cpu_milli
    memory = block(outcome.memory, move, bound, reason, now_s)
    phase = DecisionPhase.INTENDED if applied != here else DecisionPhase.REFUSED
    changed = {"applied": applied, "phase": phase, "masked": [*decision.masked, f"{move}: {reason}"][-16:], "message": message[:512]}
    return replace(outcome, decision=decision.model_copy(update=changed), memory=memory, masked=True)


def block(memory: ScalingMemory, move: str, bound: int, reason: MaskReason, now_s: float) -> ScalingMemory:
    """A move that failed is not tried again before its time."""
    former = next((b for b in memory.blocked if b.move == move), None)
    tries = former.tries + 1 if former is not None else 1
    until = now_s + min(BLOCKED_FIRST_S * 2 ** (tries - 1), BLOCKED_MAX_S)
    entry = Blocked(move=move, bound=bound, reason=str(reason), until=round(until, 3), tries=tries)
    return memory.model_copy(update={"blocked": [*(b for b in memory.blocked if b.move != move), entry][-8:]})


def overridden(memory: ScalingMemory, now_s: float) -> ScalingMemory:
    """Somebody else has undone a step."""
    return memory.model_copy(update={"overridden": [*memory.overridden, round(now_s, 3)][-8:]})


def _aged(memory: ScalingMemory, now_s: float) -> ScalingMemory:
    """Without what is too old to matter."""
    blocked = [b for b in memory.blocked if b.until > now_s - _FORGOTTEN_S]
    times = [at for at in memory.overridden if at > now_s - _FORGOTTEN_S]
    return memory.model_copy(update={"blocked": blocked, "overridden": times})


def _not_created(memory: ScalingMemory, view: View, spec: ScalingPolicySpec, now_s: float) -> ScalingMemory:
    """Pods that cannot be created are not asked for again and again: back to as many as there are."""
    target, there = view.target, len(view.pods)
    if not target.not_created or spec.horizontal is None or there >= target.replicas:
        return memory
    if any(b.move == "replicas-up" and b.until > now_s for b in memory.blocked):
        return memory
    reason = MaskReason.QUOTA if "exceeded quota" in target.not_created else MaskReason.PODS_NOT_CREATED
    return block(memory, "replicas-up", max(there, spec.horizontal.min_replicas), reason, now_s)


def _too_large(memory: ScalingMemory, view: View, here: Size, now_s: float) -> ScalingMemory:
    """Sizes that nodes never gave, or not in time, are not asked for again before their time."""
    found = sizing(view.pods, view.shape, here.cpu_milli, now_s).too_large
    if found is None or any(b.move == "cpu-up" and b.until > now_s for b in memory.blocked):
        return memory
    return block(memory, "cpu-up", *found, now_s)


def _lesson(policy: ScalingSeen, spec: ScalingPolicySpec, deciders: Deciders, view: View, here: Size, now_s: float) -> Lesson:
    acts, horizontal, vertical = _acts(policy, spec, view), spec.horizontal, spec.vertical

    def its_own(window: Window) -> bool:
        # it was decided at its beginning, by readings that were late
        block = block_at(policy, spec, window.at_s - window.length_s / 2)
        return acts and (block is None or (block.obeys and not block.washing))

    full = (horizontal is None or here.replicas >= horizontal.max_replicas) and (
        vertical is None or here.cpu_milli >= vertical.max_cpu_milli
    )
    return Lesson(view.measured, view.rates, now_s, view.starts, deciders.control, its_own, full)


def _controlled(state: ScalingState, known: Learned, control: Control | None) -> ScalingState:
    """The state with what was learned for an agent that asks for it."""
    return state if control is None else replace(state, headroom=known.headroom.value, stands=known.stands(control, state.window_s))


def _state(policy: ScalingSeen, spec: ScalingPolicySpec, view: View, here: Size, space: Room, cpu_ms: float, now_s: float) -> ScalingState:
    objective = spec.objective
    return ScalingState(
        workload=f"{policy.namespace}/{spec.target_ref.name}",
        now_s=now_s,
        window_s=float(spec.interval_seconds),
        replicas=here.replicas,
        ready=sum(pod.ready for pod in view.pods),
        cpu_m=here.cpu_milli,
        windows=view.measured.windows,
        rates=view.rates,
        cpu_ms=cpu_ms,
        objective=Objective(objective.latency_milliseconds / 1000, objective.percentile / 100, objective.attainment_percent / 100),
        bounds=space.bounds,
        mask=space.mask,
    )


def clamped_size(
    spec: ScalingPolicySpec, memory: ScalingMemory, here: Size, wanted: ScalingDecision, now_s: float
) -> tuple[Size, ScalingMemory, tuple[LimitReason, ...]]:
    """Each dimension through its own limits; the history remembers what was wanted, masked or not."""
    size, reasons, update = here, list[LimitReason](), dict[str, object]()
    if spec.horizontal is not None:
        found = clamp(replica_limits(spec.horizontal), history_of(memory.replicas), here.replicas, wanted.replicas, now_s)
        size = size.model_copy(update={"replicas": found.value})
        update["replicas"] = memory_of(found.history)
        reasons.append(found.reason)
    if spec.vertical is not None:
        found = clamp(cpu_limits(spec.vertical), history_of(memory.cpu), steps(here.cpu_milli), steps(wanted.cpu_m), now_s)
        size = size.model_copy(update={"cpu_milli": milli_of(found, here)})
        update["cpu"] = memory_of(found.history)
        reasons.append(found.reason)
    return size, memory.model_copy(update=update), tuple(reasons)


def _at_bound(applied: Size, space: Room) -> bool:
    """Whether it stopped where a mask begins: agents see bounds and rarely want more."""
    moves = {said.partition(":")[0] for said in space.masked}
    pods, cpu = "replicas-up" in moves, "cpu-up" in moves
    return (pods and applied.replicas >= space.bounds.max_replicas) or (cpu and applied.cpu_milli >= space.bounds.max_cpu_m)


def milli_of(found: Clamped, here: Size) -> int:
    """A hold keeps the size as it is, were it no multiple of a step."""
    return here.cpu_milli if found.value == steps(here.cpu_milli) else found.value * CPU_STEP_MILLI


def stepped(memory: ScalingMemory, here: Size, applied: Size, now_s: float) -> ScalingMemory:
    """The memory with the steps that are about to be made, so that rates count them even if the process dies before it can record them."""
    replicas = history_of(memory.replicas).changed(applied.replicas - here.replicas, now_s)
    cpu = history_of(memory.cpu).changed(steps(applied.cpu_milli) - steps(here.cpu_milli), now_s)
    return memory.model_copy(update={"replicas": memory_of(replicas), "cpu": memory_of(cpu)})


def _held(record: LastDecision, memory: ScalingMemory, window: Window | None, reason: ScalingReason, message: str) -> Outcome:
    written = record.model_copy(update={"reasons": [str(reason)], "message": message[:512]})
    return Outcome(written, memory, window, held=reason, message=message)
