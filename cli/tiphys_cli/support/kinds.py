"""`tiphys doctor` about objects of every kind: conditions that say no, with what to do; the same for all kinds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tiphys_cli.support.facts import ConditionFact, Finding, KindFact
from tiphys_models.api.reasons import ConditionType, ModelConditionType
from tiphys_models.api.resources import (
    INFERENCE_SITE,
    LEARNED_MODEL,
    MODEL_VARIANT,
    PLACEMENT_PLAN,
    SCALING_POLICY,
    SCHEDULING_POLICY,
    STREAM_POLICY,
    Resource,
)
from tiphys_models.api.scaling_reasons import ScalingConditionType
from tiphys_models.api.stream_reasons import BindingConditionType
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s

_SHOWN = 20
"""Lines of one kind: a thousand objects with one cause need no thousand lines."""
GOOD: Mapping[str, Mapping[str, str]] = {
    SCHEDULING_POLICY.kind: {
        ConditionType.CONFLICT: "False",
        ConditionType.MODEL_LOADED: "True",
        ConditionType.SELECTING: "True",
        ConditionType.HINTING: "True",
    },
    LEARNED_MODEL.kind: {ModelConditionType.ACCEPTED: "True", ModelConditionType.LOADED: "True"},
    SCALING_POLICY.kind: {
        ScalingConditionType.READY: "True",
        ScalingConditionType.METRICS_AVAILABLE: "True",
        ScalingConditionType.CONFLICT: "False",
        ScalingConditionType.MODEL_LOADED: "True",
        ScalingConditionType.ROLLED_BACK: "False",
    },
    INFERENCE_SITE.kind: {BindingConditionType.REACHABLE: "True"},
    MODEL_VARIANT.kind: {BindingConditionType.READY: "True"},
    STREAM_POLICY.kind: {BindingConditionType.READY: "True"},
}
"""Conditions that are looked at, with the status that is well. SchedulingPolicy's Ready and Routed have lines of their own."""
_FINE = frozenset(
    {"Disabled", "Paused", "Idle", "NotProbed", "NotDecidedYet", "NotCompared", "NotChosenYet", "SelectionFrozen", "Candidate", "Retired"}
)
"""Reasons that nobody need mend: somebody wants it so, or it passes."""
ADVICE: Mapping[str, str] = {
    "AccessSiteNotFound": "correct spec.accessSite, or apply the InferenceSite",
    "AgentUnavailable": "`tiphys policies` lists the agents there are; `rule` needs nothing",
    "BinderUnreachable": "is a binder running for this access site, and is its address in operator.binding.binders?",
    "CapacityUnknown": "wait for load, or set spec.agent.requestCpuMicroseconds",
    "Conflict": "delete the newer of the two",
    "DegradedToFallback": "publish sound weights (`tiphys model publish`), or choose another policy (`tiphys policies`)",
    "HintsForbidden": "set hints.enabled of the chart, which gives the operator's account the right",
    "HintsOff": "set hints.enabled (and hints.namespaces) of the chart, or remove spec.hints",
    "InternalError": "the operator's log line `object left out` names the error; correct the object, or empty its status",
    "InvalidSpec": "correct the field that the message names",
    "ModelMissing": "publish it with `tiphys model publish`, or remove the name",
    "ModelRefused": "publish sound weights; the last good version decides until then",
    "ModelStage": "raise spec.stage of the LearnedModel, or lower the mode",
    "NoOffers": "`kubectl get isite,mvar`: a variant needs a ready endpoint and a site whose delay is known",
    "NoReadyEndpoint": "`kubectl get endpointslices`: the Service of the variant has no ready endpoint",
    "NotAnAccessSite": "set `access: true` in that InferenceSite",
    "Overridden": "let whoever else writes spec.replicas ignore it, or narrow one of the selectors",
    "ProbeRefused": "another address, or operator.probes.allow",
    "ProbesMissed": "does the site answer at spec.probe from where the operator stands? Nothing is bound there meanwhile",
    "PrometheusUnreachable": "set extender.prometheus.url of the chart to a Prometheus that answers",
    "SamplesStale": "scrape at least twice a window",
    "SeriesMissing": "correct spec.objective.metrics",
    "SiteNotFound": "correct spec.site, or apply the InferenceSite",
    "SiteUnreachable": "see the lines on its InferenceSite",
    "TargetNotFound": "correct spec.targetRef",
    "TargetUnfit": "set resources.limits.cpu of that container in the pod template",
    "UnknownPolicy": "install the package that brings it in the image that decides, or name another one (`tiphys policies`)",
    "WeightsNotShipped": "`tiphys model ship NAME` brings the weights; the rule answers until then",
    "WorseThanRule": "the rule decides: compare both in status, then train anew or remove the agent",
    "WrongNamespace": "publish it in the namespace of the release",
}
"""Advice by reason, where the condition's message does not say it already."""


def kind_fact(resource: Resource, obj: Mapping[str, Any], now_s: float) -> KindFact:
    """The fact that an object is, as the API server sends it."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    conditions = tuple(
        ConditionFact(*(str(c.get(part) or "") for part in ("type", "status", "reason", "message")))
        for c in status.get("conditions") or ()
        if isinstance(c, dict)
    )
    return KindFact(
        kind=resource.kind,
        short_name=resource.short_name,
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        mode=str(spec.get("mode") or ""),
        behind=bool(conditions) and (status.get("observedGeneration") or 0) < (metadata.get("generation") or 0),
        conditions=conditions,
        expired_s=_expired_s(spec, now_s) if resource is PLACEMENT_PLAN else None,
    )


def _expired_s(spec: Mapping[str, Any], now_s: float) -> float | None:
    try:
        end_s = timestamp_s(str(spec.get("validUntil") or ""))
    except InvalidInput:
        return None
    return now_s - end_s if end_s is not None and now_s > end_s else None


def kind_findings(objects: Sequence[KindFact]) -> Iterator[Finding]:
    """Findings on each kind that is used: one for each object that is not well, else one line that all are."""
    kinds = dict.fromkeys(fact.kind for fact in objects)
    for kind in kinds:
        of_kind = [fact for fact in objects if fact.kind == kind]
        wrong = [finding for fact in of_kind for finding in _of(fact)]
        yield from wrong[:_SHOWN]
        if len(wrong) > _SHOWN:
            yield Finding(kind, "WARN", f"and {len(wrong) - _SHOWN} more of this kind", f"kubectl get {of_kind[0].short_name} -A")
        if not wrong:
            yield Finding(kind, "OK", f"{len(of_kind)} in use, and nothing to mend")


def unlisted_findings(kinds: Sequence[str]) -> Iterator[Finding]:
    """One finding for each kind that could not be looked at."""
    for kind in kinds:
        yield Finding(kind, "WARN", "you may not list objects of this kind, so none was checked", "ask for list on it in all namespaces")


def _of(fact: KindFact) -> Iterator[Finding]:
    look = f"kubectl -n {fact.namespace} describe {fact.short_name} {fact.name}"
    if fact.expired_s is not None:
        message = f"{fact.key} has not been valid for {fact.expired_s:.0f} s: the fallback rule places pods"
        yield Finding(fact.kind, "WARN", message, "is the operator running, and is its SchedulingPolicy Selecting? " + look)
    if fact.mode == "Off":
        return
    if fact.behind:
        yield Finding(
            fact.kind, "WARN", f"{fact.key} has a status of an older spec", "is the operator running, and does it hold its Lease?"
        )
    for condition in _bad(fact.kind, fact.conditions):
        said = f": {condition.message}" if condition.message else ""
        yield Finding(
            fact.kind,
            "WARN",
            f"{fact.key}: {condition.type} is {condition.status} ({condition.reason}){said}",
            ADVICE.get(condition.reason, look),
        )
    if fact.kind in GOOD and fact.kind != SCHEDULING_POLICY.kind and not fact.conditions:
        yield Finding(fact.kind, "WARN", f"{fact.key} has no status", "is the operator running with this kind switched on? " + look)


def _bad(kind: str, conditions: Iterable[ConditionFact]) -> Iterator[ConditionFact]:
    wanted = GOOD.get(kind, {})
    return (c for c in conditions if c.type in wanted and c.status != wanted[c.type] and c.reason not in _FINE)
