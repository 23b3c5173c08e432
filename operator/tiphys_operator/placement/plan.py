"""What every policy's status should say: a pure function of an observation.

Ready is about the spec and what it needs; Conflict, Routed and ModelLoaded say more. The reasons are those of `tiphys_models.api.reasons`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tiphys_models.api.base import Condition
from tiphys_models.api.reasons import ConditionType, Reason
from tiphys_models.api.routing import PROTECTED_NAMESPACES, Route, Router
from tiphys_models.api.scheduling_policy import DecisionCounters, SchedulingPolicyStatus
from tiphys_models.api.selection import SelectionStatus
from tiphys_models.kube.guard import caught
from tiphys_operator.placement.hint_verdicts import hint_verdicts
from tiphys_operator.placement.model_plan import ModelWrite, plan_models, policy_model
from tiphys_operator.placement.observation import AnswerCounts, ModelSeen, Observation, PolicySeen, SelectionSeen
from tiphys_operator.placement.select_verdicts import candidate, select_verdicts, switch_events
from tiphys_operator.placement.unknown_names import unknown_policy, with_unknown
from tiphys_operator.runtime.conditions import MESSAGE_MAX, Verdict, condition, former
from tiphys_operator.runtime.events import EventWrite

_ABLE = {
    "cost": "remove policy, or set it to lifetimes, most-allocated or estimator",
    "both": "remove policy, or set it to estimator",
}
_NAMED = 3  # how many names a message lists


@dataclass(frozen=True, slots=True)
class StatusWrite:
    """A status that differs from what stands there."""

    policy: PolicySeen
    status: SchedulingPolicyStatus
    counted: AnswerCounts
    """Answers that this status counts and the former did not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one reconciliation writes."""

    statuses: tuple[StatusWrite, ...]
    events: tuple[EventWrite, ...]
    counts: Mapping[tuple[str, str], int]
    """Policies by mode and Ready."""
    models: tuple[ModelWrite, ...] = ()
    trips: tuple[Tripped, ...] = ()


@dataclass(frozen=True, slots=True)
class Tripped:
    """An object that could not be judged."""

    about: PolicySeen | ModelSeen
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
    writes: list[StatusWrite] = []
    events: list[EventWrite] = []
    trips: list[Tripped] = []
    counts: Counter[tuple[str, str]] = Counter()
    for policy in observation.policies:
        if policy.deleting:
            continue
        with caught() as trip:
            found = _judged(policy, observation, router, own_namespace, scheduler_name)
        if trip.error is not None:
            trips.append(Tripped(policy, trip.message))
            found = _failed(policy, observation.now_s, trip.message)
        if found.write.status != policy.status:
            writes.append(found.write)
        events.extend(found.events)
        counts[policy.mode, found.ready] += 1
    model_writes, news, broken = plan_models(observation, own_namespace)
    trips.extend(Tripped(model, message) for model, message in broken)
    events.extend(EventWrite(item.model, item.warning, str(item.reason), item.message) for item in news)
    return Plan(tuple(writes), tuple(events), counts, tuple(model_writes), tuple(trips))


@dataclass(frozen=True, slots=True)
class _Judged:
    """What one policy comes to."""

    write: StatusWrite
    events: tuple[EventWrite, ...]
    ready: str


def _judged(policy: PolicySeen, observation: Observation, router: Router, own_namespace: str, scheduler_name: str) -> _Judged:
    answers = observation.answers.get(policy.key, AnswerCounts())
    chosen: SelectionStatus | None = None
    events: list[EventWrite] = []
    pods = _count(observation, policy, router)
    verdicts: tuple[Verdict, ...]
    active = digest = ""
    if policy.route is None:
        verdicts = _invalid(policy.invalid)
    elif policy.namespace in PROTECTED_NAMESPACES | {own_namespace}:
        verdicts = _invalid(f"pods of namespace {policy.namespace} are never placed by Tiphys: delete this policy")
    else:
        model, digest = policy_model(policy.route, observation)
        selection = observation.selections.get(policy.key, SelectionSeen("", 0, None))
        deciding = policy.route.deciding if policy.route.spec.select is None else candidate(policy, selection)
        ready = unknown_policy(policy.route.spec, observation.served_policies) or _ready(
            policy, policy.route, deciding, model, answers, serves=bool(digest) or model.status == "True"
        )
        problem = observation.pod_problems.get(policy.key, "")
        routed = _routed(pods, scheduler_name, problem) if pods is not None or problem else _routed_before(policy)
        verdicts = (ready, _conflict(policy.route, router, pods), routed, model)
        active = _active(policy, policy.route, ready, answers)
        if policy.route.spec.select is not None:
            verdicts, active = select_verdicts(verdicts, deciding, selection)
            verdicts = with_unknown(verdicts, policy.route.spec)
            chosen = selection.status or policy.status.selection
            events.extend(switch_events(policy, selection))
        verdicts = (*verdicts, *hint_verdicts(policy.route.spec, policy.namespace, observation.hints))
    status = SchedulingPolicyStatus(
        observed_generation=policy.generation,
        active_policy=active,
        selection=chosen,
        model_digest=digest,
        matching_pods=pods.matching if pods else policy.status.matching_pods,
        routed_pods=pods.routed if pods else policy.status.routed_pods,
        decisions=_added(policy.status.decisions, answers),
        conditions=[condition(verdict, policy.status.conditions, policy.generation, observation.now_s) for verdict in verdicts],
    )
    return _Judged(StatusWrite(policy, status, answers), (*events, *_events(policy, verdicts)), verdicts[0].status)


def _failed(policy: PolicySeen, now_s: float, message: str) -> _Judged:
    """The result for a policy whose judging failed: its status stays as it is, but for Ready."""
    ready = Verdict(ConditionType.READY, "False", Reason.INTERNAL_ERROR, message)
    others = [c for c in policy.status.conditions if c.type != ConditionType.READY]
    conditions = [condition(ready, policy.status.conditions, policy.generation, now_s), *others]
    status = policy.status.model_copy(update={"observed_generation": policy.generation, "conditions": conditions})
    return _Judged(StatusWrite(policy, status, AnswerCounts()), tuple(_events(policy, (ready,))), ready.status)


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


def _ready(policy: PolicySeen, route: Route, deciding: str, model: Verdict, answers: AnswerCounts, *, serves: bool) -> Verdict:
    kind, spec = ConditionType.READY, route.spec
    if spec.mode == "Off":
        return Verdict(kind, "False", Reason.DISABLED, "mode is Off: set Shadow, Canary or Active")
    if spec.judge is None:
        message = f"{spec.fallback} answers: {deciding} cannot judge by objective {spec.objective}; {_ABLE[spec.objective]}"
        return Verdict(kind, "False", Reason.OBJECTIVE_UNSUPPORTED, message)
    if not serves:
        message = f"{spec.fallback} answers instead of {deciding}: {model.message}"
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, message)
    if answers.fallback and not answers.scored:
        stand_in, why = spec.stand_in(answers.fallback_reason), answers.fallback_reason or "no reason"
        message = f"{stand_in} answers instead of {deciding}: the extender reports {why}"
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, message)
    before = former(policy.status.conditions, ConditionType.READY)
    if _still_degraded(policy, before, answers):
        return Verdict(kind, "False", Reason.DEGRADED_TO_FALLBACK, before.message if before else "")
    what = {
        "Shadow": f"{deciding} is asked, but decides nothing",
        "Canary": f"{deciding} decides {spec.canary.percent if spec.canary else 0} % of the pods",
        "Active": f"{deciding} decides",
    }
    return Verdict(kind, "True", Reason.ACCEPTED, what[spec.mode])


def _still_degraded(policy: PolicySeen, before: Condition | None, answers: AnswerCounts) -> bool:
    """The extender reported fallbacks for this very spec, and has scored nothing since."""
    if before is None or before.reason != Reason.DEGRADED_TO_FALLBACK or before.observed_generation != policy.generation:
        return False
    model = former(policy.status.conditions, ConditionType.MODEL_LOADED)
    return model is not None and model.status == "True" and not answers.scored


def _active(policy: PolicySeen, route: Route, ready: Verdict, answers: AnswerCounts) -> str:
    if ready.reason == Reason.DISABLED:
        return ""
    stands_in = ready.reason in (Reason.DEGRADED_TO_FALLBACK, Reason.UNKNOWN_POLICY, Reason.OBJECTIVE_UNSUPPORTED)
    if not stands_in:
        return route.deciding
    before = former(policy.status.conditions, ConditionType.READY)
    if policy.status.active_policy and before is not None and (before.reason, before.message) == (ready.reason, ready.message):
        return policy.status.active_policy  # nothing was reported since
    return route.spec.stand_in(answers.fallback_reason)


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


def _routed_before(policy: PolicySeen) -> Verdict:
    """What stands there, until pods have been listed for the first time: a new leader knows no better than the one before."""
    before = former(policy.status.conditions, ConditionType.ROUTED)
    if before is not None and before.observed_generation == policy.generation and before.reason in set(Reason):
        return Verdict(ConditionType.ROUTED, before.status, Reason(before.reason), before.message)
    return Verdict(ConditionType.ROUTED, "Unknown", Reason.PODS_UNKNOWN, "pods are being listed")


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
        before = former(policy.status.conditions, verdict.type)
        if before is not None and (before.status, before.reason) == (verdict.status, verdict.reason):
            continue
        bad = verdict.reason in _WARNINGS
        good = verdict.reason in _GOOD_NEWS or (before is not None and before.reason in _WARNINGS and verdict.reason in _RECOVERIES)
        if verdict.status == "Unknown" or not (bad or good):
            continue
        events.append(EventWrite(policy, bad, str(verdict.reason), verdict.message[:MESSAGE_MAX]))
    return events


_WARNINGS = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.INTERNAL_ERROR,
        Reason.DEGRADED_TO_FALLBACK,
        Reason.UNKNOWN_POLICY,
        Reason.OBJECTIVE_UNSUPPORTED,
        Reason.OVERRIDDEN,
        Reason.NOT_ROUTED,
        Reason.MODEL_MISSING,
        Reason.WEIGHTS_NOT_SHIPPED,
        Reason.MODEL_REFUSED,
        Reason.MODEL_STAGE,
        Reason.SELECTOR_UNAVAILABLE,
        Reason.CLUSTER_UNKNOWN,
        Reason.HINTS_OFF,
        Reason.HINTS_FORBIDDEN,
    }
)
_GOOD_NEWS = frozenset({Reason.ACCEPTED, Reason.DISABLED, Reason.MODEL_LOADED})
_RECOVERIES = frozenset({Reason.NO_CONFLICT, Reason.PODS_ROUTED, Reason.MODEL_NOT_NEEDED, Reason.SELECTING, Reason.HINTING})
