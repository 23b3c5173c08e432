"""The calibrated settings of the rules: what `tiphys bench scaling --calibrate` found on the train split, copied by hand."""

from __future__ import annotations

from tiphys_models.scaling.rules import HPA, Naive, Rule, RuleHorizontal, RuleSetting

RULE = RuleSetting(headroom=1.08, last=1, rise=0.75, spread=0.0, keep=4, pod_m=600.0, spare_m=5.0)
RULE_HORIZONTAL = RuleSetting(headroom=1.0, last=1, rise=1.0, spread=0.0, keep=2, pod_m=400.0)


def rule(attainment: float) -> Rule:
    """One setting for every wanted attainment: it is the bar."""
    return Rule(RULE)


def rule_horizontal(attainment: float) -> RuleHorizontal:
    """See `rule`."""
    return RuleHorizontal(RULE_HORIZONTAL)


def hpa(attainment: float) -> HPA:
    """At 80 % of the request."""
    return HPA()


def naive(attainment: float) -> Naive:
    """As published."""
    return Naive()
