"""The calibrated settings of the rules: what `tiphys bench scaling --calibrate` found on the train split."""

from __future__ import annotations

from tiphys_models.base.constants import constant
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.hpa import HPA, RPSHPA
from tiphys_models.scaling.rule_plus import RulePlus
from tiphys_models.scaling.rules import Naive, Rule, RuleHorizontal, RuleSetting

RULE = RuleSetting(**constant("scaling.rule"))
RULE_HORIZONTAL = RuleSetting(**constant("scaling.rule-horizontal"))


def rule(attainment: float) -> Rule:
    """Estimates the coming rate and resizes pods in place at once; one setting for every wanted attainment."""
    return Rule(RULE)


def rule_horizontal(attainment: float) -> RuleHorizontal:
    """Estimates the coming rate like `rule`, and changes the number of pods of one calibrated size."""
    return RuleHorizontal(RULE_HORIZONTAL)


def rule_plus(attainment: float) -> RulePlus:
    """The rule with controlled headroom, CPU a request from all windows, sizes for ready pods, standing pods and looks between windows."""
    return RulePlus(Control(objective=attainment))


def hpa(attainment: float) -> HPA:
    """HorizontalPodAutoscaler's formula on CPU, at 80 % of the request."""
    return HPA()


def rps_hpa(attainment: float) -> RPSHPA:
    """HorizontalPodAutoscaler on requests a second, at 80 % of what a pod of its size serves."""
    return RPSHPA()


def naive(attainment: float) -> Naive:
    """CPU of a pod above 250m: one pod more, else one fewer. As published: it cannot hold still."""
    return Naive()
