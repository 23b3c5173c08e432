"""What a policy with `hints` says of them: the condition Hinting. Pure."""

from __future__ import annotations

from tiphys_models.api.reasons import ConditionType, Reason
from tiphys_models.api.scheduling_policy import SchedulingPolicySpec
from tiphys_operator.placement.observation import HintRights
from tiphys_operator.runtime.conditions import Verdict


def hint_verdicts(spec: SchedulingPolicySpec, namespace: str, rights: HintRights | None) -> tuple[Verdict, ...]:
    """The condition; none for a policy that asks for no hints."""
    kind, hints = ConditionType.HINTING, spec.hints
    if not hints.any:
        return ()
    if rights is None:
        return (Verdict(kind, "False", Reason.HINTS_OFF, "this release writes no hints: set hints.enabled of the chart"),)
    if rights.namespaces and namespace not in rights.namespaces:
        message = f"this release writes no hints in namespace {namespace}: name it in hints.namespaces of the chart"
        return (Verdict(kind, "False", Reason.HINTS_OFF, message),)
    if {"", namespace} & rights.denied:
        message = "the operator may not patch pods: hints.enabled of the chart gives its ServiceAccount the right"
        return (Verdict(kind, "False", Reason.HINTS_FORBIDDEN, message),)
    if spec.mode not in ("Active", "Canary"):
        return (Verdict(kind, "False", Reason.DISABLED, f"mode is {spec.mode}: hints are written in Canary and Active"),)
    named = " and ".join(name for name, asked in (("doNotDisrupt", hints.do_not_disrupt), ("deletionCost", hints.deletion_cost)) if asked)
    who = f"the canary's {spec.canary.percent} % of its pods" if spec.mode == "Canary" and spec.canary is not None else "its pods"
    return (Verdict(kind, "True", Reason.HINTING, f"{named} is written on {who} as far as something is known"),)
