"""The calibrated settings of the rules: what `tiphys bench scaling --calibrate` found on the train split, copied by hand."""

from __future__ import annotations

from tiphys_models.scaling.rules import HPA, Naive, Rule, RuleHorizontal, RuleSetting

RULE = RuleSetting(headroom=1.08, last=1, rise=0.75, spread=0.0, keep=4, pod_m=600.0, spare_m=5.0)
RULE_HORIZONTAL = RuleSetting(headroom=1.0, last=1, rise=1.0, spread=0.0, keep=2, pod_m=400.0)


def rule(attainment: float) -> Rule:
    """Estimates the coming rate and resizes pods in place at once; one setting for every wanted attainment."""
    return Rule(RULE)


def rule_horizontal(attainment: float) -> RuleHorizontal:
    """The same estimate, in pods of one calibrated size."""
    return RuleHorizontal(RULE_HORIZONTAL)


def hpa(attainment: float) -> HPA:
    """HorizontalPodAutoscaler's formula on CPU, at 80 % of the request."""
    return HPA()


def naive(attainment: float) -> Naive:
    """CPU of a pod above 250m: one pod more, else one fewer. As published: it cannot hold still."""
    return Naive()
