"""Statuses of sites, variants and stream policies: pure functions of what was seen, probed and reported."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_models.api.inference_site import InferenceSiteStatus, MeasuredDelay
from tiphys_models.api.model_variant import ENDPOINTS_SHOWN, ModelVariantStatus
from tiphys_models.api.stream_policy import QueryShares, StreamPolicySpec, StreamPolicyStatus
from tiphys_models.api.stream_reasons import BindingConditionType, ProbeRefusal, SiteReason, StreamReason, VariantReason
from tiphys_models.api.stream_summary import QueryCounts, StreamSummary
from tiphys_models.base.quantity import timestamp_s
from tiphys_operator.runtime.conditions import Verdict, condition, former
from tiphys_operator.streams.rounds import MISSED_MAX, Rounds
from tiphys_operator.streams.seen import PolicyObject, SiteObject, VariantObject

REFRESH_S = 60.0
"""A measurement that has not moved is written so seldom; the catalogue believes it for ten times as long."""
MOVED_S = 10.0
"""One that has moved, so often."""
_OWN_VERDICTS = (SiteReason.PROBED, SiteReason.PROBES_MISSED, SiteReason.PROBE_REFUSED)
_READY, _REACHABLE = BindingConditionType.READY, BindingConditionType.REACHABLE


def failed_site(site: SiteObject, message: str, now_s: float) -> InferenceSiteStatus:
    """The status of a site whose handling failed inside the operator."""
    verdict = Verdict(_REACHABLE, "Unknown", SiteReason.INTERNAL_ERROR, message)
    found = condition(verdict, site.status.conditions, site.generation, now_s)
    return InferenceSiteStatus(observed_generation=site.generation, conditions=[found])


def failed_variant(variant: VariantObject, message: str, now_s: float) -> ModelVariantStatus:
    """The status of a variant whose handling failed inside the operator."""
    verdict = Verdict(_READY, "False", VariantReason.INTERNAL_ERROR, message)
    found = condition(verdict, variant.status.conditions, variant.generation, now_s)
    return ModelVariantStatus(observed_generation=variant.generation, conditions=[found])


def failed_policy(policy: PolicyObject, message: str, now_s: float) -> StreamPolicyStatus:
    """The status of a policy whose handling failed inside the operator."""
    verdict = Verdict(_READY, "False", StreamReason.INTERNAL_ERROR, message)
    found = condition(verdict, policy.status.conditions, policy.generation, now_s)
    return StreamPolicyStatus(observed_generation=policy.generation, conditions=[found])


def measured_here(status: InferenceSiteStatus, access_site: str) -> InferenceSiteStatus:
    """Without what others measured elsewhere: that is theirs to write."""
    return status.model_copy(update={"delays": [d for d in status.delays if d.origin == access_site]})


def site_status(site: SiteObject, rounds: Rounds | None, access_site: str, now_s: float) -> InferenceSiteStatus:
    """What its probes have shown; what they have not shown yet stays as it stands."""
    own = next(iter(measured_here(site.status, access_site).delays), None)
    delay = own
    if rounds is not None and access_site:
        measured = rounds.delay(access_site)
        delay = measured if measured is not None and _worth_writing(own, measured, now_s) else own
    return InferenceSiteStatus(
        observed_generation=site.generation,
        delays=[] if delay is None else [delay],
        conditions=[condition(_reachable(site, rounds), site.status.conditions, site.generation, now_s)],
    )


def _reachable(site: SiteObject, rounds: Rounds | None) -> Verdict:
    if site.spec is None:
        return Verdict(_REACHABLE, "Unknown", SiteReason.INVALID_SPEC, site.invalid)
    if rounds is None:
        return Verdict(_REACHABLE, "Unknown", SiteReason.NOT_PROBED, "spec.probe is not set: the site is trusted to answer")
    if rounds.refused is ProbeRefusal.TOO_MANY_SITES:
        message = f"not probed ({rounds.refused}): its namespace has more sites with a probe than are probed; it is bound to unseen"
        return Verdict(_REACHABLE, "Unknown", SiteReason.PROBE_REFUSED, message)
    if rounds.refused is not None:
        message = f"the operator does not probe this address ({rounds.refused}); nothing is bound there"
        return Verdict(_REACHABLE, "False", SiteReason.PROBE_REFUSED, message)
    if rounds.reachable is None:
        before = former(site.status.conditions, _REACHABLE)
        if before is not None and before.reason in _OWN_VERDICTS:
            return Verdict(_REACHABLE, before.status, SiteReason(before.reason), before.message)  # of the leader before us
        return Verdict(_REACHABLE, "Unknown", SiteReason.NOT_PROBED, "no probe has ended yet")
    if rounds.reachable:
        return Verdict(_REACHABLE, "True", SiteReason.PROBED, "probes are answered")
    message = f"{MISSED_MAX} probes in a row were missed, the last with: {rounds.why_missed}; nothing is bound there until one is answered"
    return Verdict(_REACHABLE, "False", SiteReason.PROBES_MISSED, message)


def _worth_writing(own: MeasuredDelay | None, new: MeasuredDelay, now_s: float) -> bool:
    if own is None:
        return True
    age_s = now_s - (timestamp_s(own.measured_at) or 0.0)
    moved = abs(new.mean_ms - own.mean_ms) > 0.1 * own.mean_ms or abs(new.sigma_ms - own.sigma_ms) > 0.25 * own.sigma_ms
    return age_s >= REFRESH_S or (moved and age_s >= MOVED_S)


def variant_status(variant: VariantObject, site: SiteObject | None, ready: Sequence[str] | None, now_s: float) -> ModelVariantStatus:
    """`ready`: addresses of its Service; None: not known, so what stands there stays."""
    spec, before = variant.spec, variant.status
    replicas, shown = before.replicas, before.endpoints
    if spec is not None and spec.endpoint.service is None:
        replicas, shown = 1, [str(spec.endpoint.url)]
    elif ready is not None:
        replicas, shown = len(ready), list(ready[:ENDPOINTS_SHOWN])
    verdict = _variant_ready(variant, site, replicas)
    return ModelVariantStatus(
        observed_generation=variant.generation,
        replicas=replicas,
        endpoints=shown,
        conditions=[condition(verdict, before.conditions, variant.generation, now_s)],
    )


def _variant_ready(variant: VariantObject, site: SiteObject | None, replicas: int) -> Verdict:
    spec = variant.spec
    if spec is None:
        return Verdict(_READY, "False", VariantReason.INVALID_SPEC, variant.invalid)
    if site is None:
        return Verdict(_READY, "False", VariantReason.SITE_NOT_FOUND, f"there is no InferenceSite {spec.site!r} in this namespace")
    reachable = former(site.status.conditions, _REACHABLE)
    if site.spec is not None and site.spec.probe is not None and reachable is not None and reachable.status == "False":
        return Verdict(_READY, "False", VariantReason.SITE_UNREACHABLE, f"{spec.site} misses its probes")
    if spec.endpoint.service is None:
        return Verdict(_READY, "True", VariantReason.ADDRESS_GIVEN, "an address outside the cluster; only its site is probed")
    if replicas == 0:
        return Verdict(_READY, "False", VariantReason.NO_READY_ENDPOINT, f"Service {spec.endpoint.service.name} has no ready endpoint")
    return Verdict(_READY, "True", VariantReason.ENDPOINTS_READY, f"{replicas} ready")


def policy_status(
    policy: PolicyObject, site: SiteObject | None, governing: PolicyObject | None, summary: StreamSummary | None, now_s: float
) -> StreamPolicyStatus:
    """`governing`: the policy that its access site obeys; `summary`: what the active binder there said last."""
    heard = summary if summary is not None and summary.policy == policy.name else None
    ready = condition(_policy_ready(policy, site, governing, heard), policy.status.conditions, policy.generation, now_s)
    if heard is None:
        last = policy.status.last_decision
        return StreamPolicyStatus(observed_generation=policy.generation, last_decision=last, conditions=[ready])
    return StreamPolicyStatus(
        observed_generation=policy.generation,
        active_policy=heard.active_policy,
        streams=heard.streams,
        shares=_shares(heard.minute),
        last_decision=heard.last_decision,
        comparison=heard.comparison,
        conditions=[ready],
    )


def _shares(minute: QueryCounts) -> QueryShares | None:
    known = minute.success + minute.reject + minute.failure
    if known == 0:
        return None
    success, reject, failure = (round(100 * count / known, 1) for count in (minute.success, minute.reject, minute.failure))
    return QueryShares(success_percent=success, reject_percent=reject, failure_percent=failure, queries=known)


def _policy_ready(policy: PolicyObject, site: SiteObject | None, governing: PolicyObject | None, summary: StreamSummary | None) -> Verdict:
    spec = policy.spec
    if spec is None:
        return Verdict(_READY, "False", StreamReason.INVALID_SPEC, policy.invalid)
    if spec.mode == "Off":
        return Verdict(_READY, "False", StreamReason.DISABLED, "mode is Off: nothing is bound")
    if governing is not None and governing.uid != policy.uid:
        return Verdict(_READY, "False", StreamReason.CONFLICT, f"{governing.name} is older and for the same access site: remove one")
    if site is None:
        message = f"there is no InferenceSite {spec.access_site!r} in this namespace"
        return Verdict(_READY, "False", StreamReason.ACCESS_SITE_NOT_FOUND, message)
    if site.spec is not None and not site.spec.access:
        return Verdict(_READY, "False", StreamReason.NOT_AN_ACCESS_SITE, f"set `access: true` in {spec.access_site}")
    if summary is None:
        message = "no active binder of this access site answers the operator: is one running, and does the operator know its address?"
        return Verdict(_READY, "Unknown", StreamReason.BINDER_UNREACHABLE, message)
    if summary.offers == 0:
        message = "no variant is ready at a reachable site whose delay from here is known"
        return Verdict(_READY, "False", StreamReason.NO_OFFERS, message)
    if summary.model_problem == "policy-unknown":
        message = (
            f"{spec.fallback} binds: the binder has no stream policy called {spec.policy!r}, or cannot use the package that brings it; "
            f"`tiphys policies` lists those of this distribution. Install its package in the binder's image, or name another policy"
        )
        return Verdict(_READY, "False", StreamReason.UNKNOWN_POLICY, message)
    if summary.model_problem:
        instead = "nothing can be compared" if spec.mode == "Shadow" else f"{spec.fallback} binds instead"
        message = f"{spec.policy} cannot answer, {instead}: {summary.model_problem}"
        return Verdict(_READY, "False", StreamReason.DEGRADED_TO_FALLBACK, message)
    if summary.recovering:
        message = (
            "the binder has just started: until renewals have told what is bound, it gives away only what its predecessor certainly left"
        )
        return Verdict(_READY, "True", StreamReason.RECOVERING, message)
    return _binding(spec)


def _binding(spec: StreamPolicySpec) -> Verdict:
    """Nothing is wrong: who binds, by mode."""
    where = f"streams that enter at {spec.access_site}"
    if spec.mode == "Shadow":
        return Verdict(_READY, "True", StreamReason.SHADOWING, f"{spec.fallback} binds {where}, {spec.policy} is asked and not obeyed")
    if spec.mode == "Canary" and spec.canary is not None:
        share = f"{spec.canary.percent} % of {where}"
        return Verdict(_READY, "True", StreamReason.CANARY, f"{spec.policy} binds {share}, {spec.fallback} the rest")
    return Verdict(_READY, "True", StreamReason.BINDING, f"{spec.policy} binds {where}")
