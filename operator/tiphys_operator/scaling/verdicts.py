"""Conditions and Events of a ScalingPolicy: a pure function of what one window came to."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.api.scaling_reasons import DecisionPhase, ScalingConditionType, ScalingReason
from tiphys_models.api.scaling_status import PodSizes, ScalingPolicyStatus, Size
from tiphys_models.scaling.limits import LimitReason
from tiphys_models.seats.seat import NO_ANSWER, POLICY_ERROR
from tiphys_operator.runtime.conditions import MESSAGE_MAX, Truth, Verdict, condition, former
from tiphys_operator.runtime.events import EventWrite
from tiphys_operator.scaling.agents import Chosen
from tiphys_operator.scaling.conflicts import Conflict
from tiphys_operator.scaling.decide import Outcome
from tiphys_operator.scaling.seen import ScalingSeen

MEASURE = "reward of a window: more is better"
_KIND = ScalingConditionType
_FREE = (LimitReason.DESIRED_WITHIN_RANGE, LimitReason.WITHIN_TOLERANCE)
_WARNINGS = frozenset(
    {
        ScalingReason.INVALID_SPEC,
        ScalingReason.NAMESPACE_NOT_ALLOWED,
        ScalingReason.INTERNAL_ERROR,
        ScalingReason.TARGET_NOT_FOUND,
        ScalingReason.TARGET_UNREADABLE,
        ScalingReason.TARGET_UNFIT,
        ScalingReason.AGENT_UNAVAILABLE,
        ScalingReason.PROMETHEUS_UNREACHABLE,
        ScalingReason.SERIES_MISSING,
        ScalingReason.SAMPLES_STALE,
        ScalingReason.SAMPLES_UNUSABLE,
        ScalingReason.NO_BUCKET_EDGE,
        ScalingReason.ANSWER_TOO_LARGE,
        ScalingReason.OWNED_BY_HPA,
        ScalingReason.OWNED_BY_VPA,
        ScalingReason.OWNED_BY_KEDA,
        ScalingReason.OWNED_BY_POLICY,
        ScalingReason.OVERRIDDEN,
        ScalingReason.OTHERS_UNKNOWN,
        ScalingReason.DEFERRED,
        ScalingReason.INFEASIBLE,
        ScalingReason.RESIZE_ERROR,
        ScalingReason.MODEL_MISSING,
        ScalingReason.WEIGHTS_NOT_SHIPPED,
        ScalingReason.MODEL_REFUSED,
        ScalingReason.MODEL_STAGE,
        ScalingReason.WORSE_THAN_RULE,
    }
)
_NEWS = frozenset(
    {
        ScalingReason.ACTIVE,
        ScalingReason.CANARY,
        ScalingReason.RECOMMENDING,
        ScalingReason.DISABLED,
        ScalingReason.PAUSED,
        ScalingReason.IDLE,
        ScalingReason.MODEL_LOADED,
    }
)
_RECOVERIES = frozenset(
    {
        ScalingReason.METRICS_FRESH,
        ScalingReason.NO_CONFLICT,
        ScalingReason.SETTLED,
        ScalingReason.MODEL_SHIPPED,
        ScalingReason.NOT_WORSE,
        ScalingReason.NOT_COMPARED,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a window came to; whatever is None was not looked at."""

    problem: ScalingReason | None = None
    """Why nothing was decided at all."""
    message: str = ""
    outcome: Outcome | None = None
    conflict: Conflict | None = None
    pods: PodSizes | None = None
    current: Size | None = None
    chosen: Chosen | None = None


def status_of(policy: ScalingSeen, finding: Finding, now_s: float) -> ScalingPolicyStatus:
    """The status that shows the finding. What was not looked at stays as it stands."""
    before, outcome = policy.status, finding.outcome
    conditions = [condition(v, before.conditions, policy.generation, now_s) for v in verdicts(policy, finding)]
    update: dict[str, object] = {"observed_generation": policy.generation, "conditions": conditions}
    if finding.current is not None:
        update["current"] = finding.current
    if finding.pods is not None:
        update["pods"] = finding.pods
    if finding.chosen is not None:
        update["agent"] = finding.chosen.seen
    if outcome is not None:
        update |= {"last_decision": outcome.decision, "memory": outcome.memory}
        if (comparison := outcome.memory.comparison) is not None:
            update["comparison"] = comparison.status(MEASURE, more_is_better=True)
        if outcome.decision.phase == DecisionPhase.ABANDONED:
            update["desired"] = finding.current
        elif outcome.decision.phase != DecisionPhase.HELD or before.desired is None:
            update["desired"] = outcome.decision.applied
    return before.model_copy(update=update)


def verdicts(policy: ScalingSeen, finding: Finding) -> tuple[Verdict, ...]:
    """The seven conditions of a ScalingPolicy."""
    return (
        _ready(policy, finding), _metrics(finding), _conflict(finding), _limited(finding), _resizing(policy, finding),
        _model(finding), _rolled_back(policy, finding),
    )  # fmt: skip


def events(policy: ScalingSeen, status: ScalingPolicyStatus) -> list[EventWrite]:
    """News since the status that stands there: conditions that changed, steps carried out, refusals."""
    told = []
    for new in status.conditions:
        old = former(policy.status.conditions, new.type)
        if old is not None and (old.status, old.reason) == (new.status, new.reason):
            continue
        recovered = old is not None and old.reason in _WARNINGS and new.reason in _RECOVERIES
        if new.reason in _WARNINGS or new.reason in _NEWS or recovered:
            told.append(EventWrite(policy, new.reason in _WARNINGS, str(new.reason), new.message[:MESSAGE_MAX]))
    decision, last = status.last_decision, policy.status.last_decision
    if decision is None or (last is not None and (last.number, last.phase) == (decision.number, decision.phase)):
        return told
    if decision.phase == DecisionPhase.DONE and decision.applied != decision.former:
        message = f"{_size(decision.former)} -> {_size(decision.applied)} ({', '.join(decision.reasons)}): {decision.message}"
        told.append(EventWrite(policy, False, str(ScalingReason.SCALED), message[:MESSAGE_MAX]))
    if decision.phase == DecisionPhase.REFUSED:
        told.append(EventWrite(policy, True, str(ScalingReason.REFUSED), decision.message[:MESSAGE_MAX]))
    return told


def _size(size: Size) -> str:
    return f"{size.replicas} x {size.cpu_milli}m"


def _ready(policy: ScalingSeen, finding: Finding) -> Verdict:
    if finding.problem is not None:
        return Verdict(_KIND.READY, "False", finding.problem, finding.message)
    if policy.paused:
        return Verdict(_KIND.READY, "False", ScalingReason.PAUSED, "paused by annotation: decisions are shown and change nothing")
    spec, answered = policy.spec, finding.outcome.answered if finding.outcome is not None else None
    if spec is not None and answered is not None and answered.missing in (POLICY_ERROR, NO_ANSWER):
        why = f"{spec.agent.kind} failed ({answered.missing}): the rule decides; the operator's log names the kind of error"
        return Verdict(_KIND.READY, "False", ScalingReason.AGENT_UNAVAILABLE, why)
    if spec is not None and spec.mode == "Active" and finding.conflict is None:
        if finding.chosen is not None and finding.chosen.reason is ScalingReason.WEIGHTS_NOT_SHIPPED:
            why = f"the rule decides every {spec.interval_seconds} s: {finding.chosen.message}"
            return Verdict(_KIND.READY, "True", ScalingReason.ACTIVE, why[:MESSAGE_MAX])
        return Verdict(_KIND.READY, "True", ScalingReason.ACTIVE, f"{spec.agent.kind} decides every {spec.interval_seconds} s")
    if spec is not None and spec.canary is not None and finding.conflict is None:
        canary = spec.canary
        share = f"{spec.agent.kind} decides in {canary.percent} % of blocks of {canary.block_windows} windows, the rule in the others"
        return Verdict(_KIND.READY, "True", ScalingReason.CANARY, f"{share}: see status.comparison")
    mode = spec.mode if spec is not None else "Recommend"
    why = f"mode is {mode}" if finding.conflict is None else f"somebody else scales it ({finding.conflict.reason})"
    return Verdict(_KIND.READY, "True", ScalingReason.RECOMMENDING, f"{why}: decisions are shown and change nothing")


def _metrics(finding: Finding) -> Verdict:
    outcome = finding.outcome
    if outcome is None:
        return Verdict(_KIND.METRICS_AVAILABLE, "Unknown", ScalingReason.NOT_DECIDED_YET, "nothing was measured")
    if outcome.held is not None:
        return Verdict(_KIND.METRICS_AVAILABLE, "False", outcome.held, f"{outcome.message}: what is there stays")
    if outcome.missing:
        message = f"{'; '.join(outcome.missing)}: nothing shrinks"
        return Verdict(_KIND.METRICS_AVAILABLE, "True", ScalingReason.METRICS_PARTIAL, message[:MESSAGE_MAX])
    return Verdict(_KIND.METRICS_AVAILABLE, "True", ScalingReason.METRICS_FRESH, "the last window was measured")


def _conflict(finding: Finding) -> Verdict:
    if finding.conflict is not None:
        known: Truth = "Unknown" if finding.conflict.reason is ScalingReason.OTHERS_UNKNOWN else "True"
        return Verdict(_KIND.CONFLICT, known, finding.conflict.reason, f"{finding.conflict.message}; until then we only recommend")
    if finding.outcome is None:
        return Verdict(_KIND.CONFLICT, "Unknown", ScalingReason.NOT_DECIDED_YET, "nobody was looked for")
    return Verdict(_KIND.CONFLICT, "False", ScalingReason.NO_CONFLICT, "nobody else scales it")


def _limited(finding: Finding) -> Verdict:
    outcome = finding.outcome
    if outcome is None or outcome.held is not None:
        return Verdict(_KIND.LIMITED, "Unknown", ScalingReason.NOT_DECIDED_YET, "nothing was decided")
    decision = outcome.decision
    if outcome.masked:
        message = f"{_size(decision.applied)} is what is possible: {', '.join(decision.masked) or decision.message}"
        return Verdict(_KIND.LIMITED, "True", ScalingReason.BY_MASK, message)
    if said := [str(reason) for reason in outcome.limits if reason not in _FREE]:
        return Verdict(_KIND.LIMITED, "True", ScalingReason.BY_LIMITS, ", ".join(said))
    return Verdict(_KIND.LIMITED, "False", ScalingReason.NOT_LIMITED, "the agent's wish is within all limits")


def _resizing(policy: ScalingSeen, finding: Finding) -> Verdict:
    kind, pods, spec = _KIND.RESIZING, finding.pods, policy.spec
    if pods is None or spec is None or spec.vertical is None or not spec.acts:
        return Verdict(kind, "False", ScalingReason.NOT_RESIZING, "sizes are left alone")
    if pods.infeasible:
        return Verdict(
            kind, "True", ScalingReason.INFEASIBLE, f"{pods.infeasible} pods are on nodes that never fit the size: back to what they have"
        )
    if pods.deferred:
        return Verdict(kind, "True", ScalingReason.DEFERRED, f"{pods.deferred} pods wait for room on their nodes")
    if pods.failing:
        return Verdict(kind, "True", ScalingReason.RESIZE_ERROR, f"the kubelet tries to resize {pods.failing} pods again")
    if pods.in_progress:
        return Verdict(kind, "True", ScalingReason.IN_PROGRESS, f"{pods.in_progress} pods are being resized")
    return Verdict(kind, "False", ScalingReason.SETTLED, f"{pods.sized} of {pods.total} pods have the wanted size, none is being resized")


def _model(finding: Finding) -> Verdict:
    chosen = finding.chosen
    if chosen is None:
        return Verdict(_KIND.MODEL_LOADED, "Unknown", ScalingReason.NOT_DECIDED_YET, "no agent was asked")
    return Verdict(_KIND.MODEL_LOADED, "True" if chosen.loaded else "False", chosen.reason, chosen.message[:MESSAGE_MAX])


def _rolled_back(policy: ScalingSeen, finding: Finding) -> Verdict:
    kind = _KIND.ROLLED_BACK
    memory = policy.status.memory if finding.outcome is None else finding.outcome.memory
    if (back := memory.rolled_back) is not None:
        how = "another value of the annotation tiphys.io/retry-agent, or other weights, give it another chance"
        return Verdict(kind, "True", ScalingReason.WORSE_THAN_RULE, f"{back.message}: the rule decides; {how}")
    seen = finding.chosen.seen if finding.chosen is not None else None
    if seen is None or seen.ahead_permille is None:
        return Verdict(
            kind, "False", ScalingReason.NOT_COMPARED, "a learned agent is compared with the rule while its decisions are carried out"
        )
    return Verdict(kind, "False", ScalingReason.NOT_WORSE, "the agent is compared with the rule: see status.agent")
