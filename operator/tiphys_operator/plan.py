"""What every policy's status should say: a pure function of an observation.

Ready is about the spec and what it needs; Conflict, Routed and ModelLoaded say more. The reasons are those of `tiphys_models.api.reasons`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from tiphys_models.api.reasons import ConditionType, Reason
from tiphys_models.api.routing import PROTECTED_NAMESPACES, Route, Router
from tiphys_models.api.scheduling_policy import Condition, DecisionCounters, SchedulingPolicyStatus
from tiphys_operator.models_found import ModelFound, ModelRefused, Models
from tiphys_operator.observation import AnswerCounts, Observation, PolicySeen

Truth = Literal["True", "False", "Unknown"]
_NAMED = 3  # how many names a message lists
_MESSAGE_MAX = 1024


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A status that differs from what stands there."""

    policy: PolicySeen
    status: SchedulingPolicyStatus
    counted: AnswerCounts
    """Answers that this status counts and the former did not."""


@dataclass(frozen=True, slots=True)
class EventWrite:
    """Something that changed and that people should hear of."""

    policy: PolicySeen
    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconciliation writes."""

    statuses: tuple[StatusWrite, ...]
    events: tuple[EventWrite, ...]
    counts: Mapping[tuple[str, str], int]
    """Policies by mode and Ready."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition before it is compared with the former one."""

    type: ConditionType
    status: Truth
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Selected pods of one policy."""

    matching: int
    routed: int
    overridden: int
    """Matched, but decided by another policy."""


def plan(observation: Observation, own_namespace: str, scheduler_name: str) -> Plan:
    """Statuses and events that should be written now."""
    router = Router([p.route for p in observation.policies if p.route is not None], own_namespace)
    protected = PROTECTED_NAMESPACES | {own_namespace}
    writes: list[StatusWrite] = []
    events: list[EventWrite] = []
    counts: Counter[tuple[str, str]] = Counter()
    for policy in observation.policies:
        if policy.deleting:
            continue
        answers = observation.answers.get(policy.key, AnswerCounts())
        pods = _count(observation, policy, router)
        if policy.route is None:
            verdicts, active, digest = _invalid(policy.invalid), "", ""
        elif policy.namespace in protected:
            verdicts, active, digest = (
                _invalid(f"pods of namespace {policy.namespace} are never placed by Tiphys: delete this policy"),
                "",
                "",
            )
        else:
            model, digest = _model(policy.route, observation.models, observation.serving)
            ready = _ready(policy, policy.route, model, answers, serves=bool(digest) or model.status == "True")
            problem = observation.pod_problems.get(policy.key, "")
            verdicts = (ready, _conflict(policy.route, router, pods), _routed(pods, scheduler_name, problem), model)
            active = _active(policy.route, ready)
        conditions = [_condition(verdict, policy, observation.now_s) for verdict in verdicts]
        status = SchedulingPolicyStatus(
            observed_generation=policy.generation,
            active_policy=active,
            model_digest=digest,
            matching_pods=pods.matching if pods else policy.status.matching_pods,
            routed_pods=pods.routed if pods else policy.status.routed_pods,
            decisions=_added(policy.status.decisions, answers),
            conditions=conditions,
        )
        if status != policy.status:
            writes.append(StatusWrite(policy, status, answers))
        events.extend(_events(policy, verdicts))
        counts[policy.mode, verdicts[0].status] += 1
    return Plan(tuple(writes), tuple(events), counts)


def _count(observation: Observation, policy: PolicySeen, router: Router) -> PodCounts | None:
    groups = observation.pods.get(policy.key)
    if groups is None:
        return None
    matching = routed = overridden = 0
    for group in groups:
        matching += group.count
        routed += group.count if group.ours else 0
        winner = router.route(policy.namespace, group.labels)
        overridden += group.count if winner is not None and winner.key != policy.key else 0
    return PodCounts(matching, routed, overridden)


def _invalid(message: str) -> tuple[Verdict, ...]:
    others = (ConditionType.CONFLICT, ConditionType.ROUTED, ConditionType.MODEL_LOADED)
    ready = Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC, message)
    return ready, *(Verdict(other, "Unknown", Reason.INVALID_SPEC, "see Ready") for other in others)


def _model(route: Route, models: Models, serving: Mapping[str, str]) -> tuple[Verdict, str]:
    """ModelLoaded, and the digest of what serves: without the artifact, the extenders may still hold the last good one."""
    kind, name, policy = ConditionType.MODEL_LOADED, route.spec.model_name, str(route.spec.policy)
    if name is None:
        return Verdict(kind, "True", Reason.MODEL_NOT_NEEDED, f"{policy} is a rule"), ""
    last_good = serving.get(name, "")
    match models.get(name):
        case ModelFound(policy=made_for, digest=digest) if made_for == policy:
            return Verdict(kind, "True", Reason.MODEL_LOADED, f"{name}, sha256 {digest[:12]}"), digest
        case ModelFound(policy=made_for):
            message = f"{name} holds weights for {made_for}, not for {policy}: name another model in spec.model"
            return Verdict(kind, "False", Reason.MODEL_REFUSED, message), ""
        case ModelRefused(message=why):
            held = f"; until then the last good one serves, sha256 {last_good[:12]}" if last_good else ""
            message = f"{why}; mount a sound artifact, it is taken without a restart{held}"
            return Verdict(kind, "False", Reason.MODEL_REFUSED, message), last_good
        case _:
            message = f"no {name}.json and {name}.safetensors among the mounted models: add them, they are taken without a restart"
            return Verdict(kind, "False", Reason.MODEL_MISSING, message), ""


def _ready(policy: PolicySeen, route: Route, model: Verdict, answers: AnswerCounts, *, serves: bool) -> Verdict:
    kind, spec = ConditionType.READY, route.spec
    if spec.mode == "Off":
        return Verdict(kind, "False", Reason.DISABLED, "mode is Off: set Shadow, Canary or Active")
    if not serves:
        message = f"{spec.fallback} answers instead of {spec.policy}: {model.message}"
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, message)
    if answers.fallback and not answers.scored:
        message = f"{spec.fallback} answers instead of {spec.policy}: the extender reports {answers.fallback_reason or 'no reason'}"
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, message)
    former = _former(policy, ConditionType.READY)
    if _still_degraded(policy, former, answers):
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, former.message if former else "")
    what = {
        "Shadow": f"{spec.policy} is asked, but decides nothing",
        "Canary": f"{spec.policy} decides {spec.canary.percent if spec.canary else 0} % of the pods",
        "Active": f"{spec.policy} decides",
    }
    return Verdict(kind, "True", Reason.ACCEPTED, what[spec.mode])


def _still_degraded(policy: PolicySeen, former: Condition | None, answers: AnswerCounts) -> bool:
    """The extender reported fallbacks for this very spec, and has scored nothing since."""
    if former is None or former.reason != Reason.DEGRADED_TO_FALLBACK or former.observed_generation != policy.generation:
        return False
    model = _former(policy, ConditionType.MODEL_LOADED)
    return model is not None and model.status == "True" and not answers.scored


def _active(route: Route, ready: Verdict) -> str:
    if ready.reason == Reason.DISABLED:
        return ""
    return str(route.spec.fallback if ready.reason == Reason.DEGRADED_TO_FALLBACK else route.spec.policy)


def _conflict(route: Route, router: Router, pods: PodCounts | None) -> Verdict:
    winners = router.conflicts_of(route)
    if not winners:
        return Verdict(ConditionType.CONFLICT, "False", Reason.NO_CONFLICT, "no other policy can decide the selected pods")
    names = ", ".join(winner.name for winner in winners[:_NAMED])
    more = f" and {len(winners) - _NAMED} more" if len(winners) > _NAMED else ""
    now = f"; at the moment {pods.overridden} of {pods.matching} pods" if pods else ""
    message = f"pods that both select are decided by {names}{more} (more specific selector, then older, then name){now}"
    return Verdict(ConditionType.CONFLICT, "True", Reason.OVERRIDDEN, message)


def _routed(pods: PodCounts | None, scheduler_name: str, problem: str) -> Verdict:
    kind = ConditionType.ROUTED
    if pods is None:
        return Verdict(kind, "Unknown", Reason.PODS_UNKNOWN, problem or "pods could not be listed")
    if pods.matching == 0:
        return Verdict(kind, "Unknown", Reason.NO_PODS, "no unfinished pod matches the selector at the moment")
    if (elsewhere := pods.matching - pods.routed) > 0:
        message = (
            f"{elsewhere} of {pods.matching} selected pods name another scheduler, which never asks Tiphys: "
            f"set schedulerName: {scheduler_name} in their template, or label the namespace tiphys.io/route=enabled"
        )
        return Verdict(kind, "False", Reason.NOT_ROUTED, message)
    return Verdict(kind, "True", Reason.PODS_ROUTED, f"all selected pods name scheduler {scheduler_name}")


def _former(policy: PolicySeen, kind: str) -> Condition | None:
    return next((condition for condition in policy.status.conditions if condition.type == kind), None)


def _condition(verdict: Verdict, policy: PolicySeen, now_s: float) -> Condition:
    former = _former(policy, verdict.type)
    since = former.last_transition_time if former is not None and former.status == verdict.status else _time(now_s)
    return Condition(
        type=verdict.type,
        status=verdict.status,
        reason=verdict.reason,
        message=verdict.message[:_MESSAGE_MAX],
        observed_generation=policy.generation,
        last_transition_time=since,
    )


def _added(counters: DecisionCounters, answers: AnswerCounts) -> DecisionCounters:
    return DecisionCounters(
        scored=counters.scored + answers.scored,
        fallback=counters.fallback + answers.fallback,
        neutral=counters.neutral + answers.neutral,
        shadow_agreed=counters.shadow_agreed + answers.shadow_agreed,
        shadow_compared=counters.shadow_compared + answers.shadow_compared,
    )


def _events(policy: PolicySeen, verdicts: tuple[Verdict, ...]) -> list[EventWrite]:
    """One for every condition that came to say something else, if people care: pods come and go without being news."""
    events = []
    for verdict in verdicts:
        former = _former(policy, verdict.type)
        if former is not None and (former.status, former.reason) == (verdict.status, verdict.reason):
            continue
        bad = verdict.reason in _WARNINGS
        good = verdict.reason in _GOOD_NEWS or (former is not None and former.reason in _WARNINGS and verdict.reason in _RECOVERIES)
        if verdict.status == "Unknown" or not (bad or good):
            continue
        events.append(EventWrite(policy, bad, str(verdict.reason), verdict.message[:_MESSAGE_MAX]))
    return events


_WARNINGS = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.DEGRADED_TO_FALLBACK,
        Reason.OVERRIDDEN,
        Reason.NOT_ROUTED,
        Reason.MODEL_MISSING,
        Reason.MODEL_REFUSED,
    }
)
_GOOD_NEWS = frozenset({Reason.ACCEPTED, Reason.DISABLED, Reason.MODEL_LOADED})
_RECOVERIES = frozenset({Reason.NO_CONFLICT, Reason.PODS_ROUTED, Reason.MODEL_NOT_NEEDED})


def _time(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
