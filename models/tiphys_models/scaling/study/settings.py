"""The settings of every agent that the scaling study plays: points on its frontier, the same for all shapes and seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tiphys_models.artifacts.files import card_of
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.headroom import OBJECTIVE
from tiphys_models.scaling.hpa import HPA, RPSHPA, Behavior
from tiphys_models.scaling.learned import AgentCard, load_agent
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.rule_plus import RulePlus
from tiphys_models.scaling.rules import Rule, RuleHorizontal
from tiphys_models.scaling.settings import RULE, RULE_HORIZONTAL

HEADROOMS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0)
"""Times the calibrated one: the margin of a rule is its price."""
UTILISATIONS = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
OBJECTIVES = (0.995, 0.99, 0.985, 0.98, 0.97, 0.96, 0.94, 0.91, 0.88, 0.8)
"""Shares of windows to keep: the axis of `rule+`."""
POD_SIZES_M, STABILISATIONS_S = (200.0, 300.0, 400.0, 500.0), (0.0, 60.0, 300.0)
TUNED = ((0.8, 400.0, 300.0), (0.5, 300.0, 300.0))
"""HPA tuned once for all: for smooth shapes, files and noise, and for jumps."""
_USUAL = (500.0, 300.0)
Setting = tuple[str, ScalingAgent]


def settings_of(agent: str, *, sweep: bool = False) -> list[Setting]:
    """(name, agent) of every point; `sweep`: of HPA also every pod size and stabilisation."""
    if agent == "rule":
        return [(_headroom(RULE.headroom * h), Rule(replace(RULE, headroom=RULE.headroom * h))) for h in HEADROOMS]
    if agent == "rule-horizontal":
        margin = RULE_HORIZONTAL.headroom
        return [(_headroom(margin * h), RuleHorizontal(replace(RULE_HORIZONTAL, headroom=margin * h))) for h in HEADROOMS]
    if agent == "rule+":
        return [(objective_name(o), RulePlus(Control(objective=o))) for o in OBJECTIVES]
    if agent in ("hpa", "rps-hpa"):
        return _of_hpa(agent, sweep=sweep)
    card = card_of(f"scaling-{agent}")
    if card.exists() and (prices := AgentCard.model_validate_json(card.read_bytes()).prices):
        return [(_price(price), load_agent(card, price)) for price, _ in prices]
    return [("only", make_agent(agent))]


def _of_hpa(agent: str, *, sweep: bool) -> list[Setting]:
    """The usual pods at every target, then those tuned once, or all of the grid."""
    grid = [(t, size_m, wait_s) for size_m in POD_SIZES_M for wait_s in STABILISATIONS_S for t in UTILISATIONS]
    others = grid if sweep else TUNED if agent == "hpa" else ()
    every = dict.fromkeys([*((t, *_USUAL) for t in UTILISATIONS), *others])
    return [(hpa_name(agent, *point), _hpa(agent, *point)) for point in every]


def _hpa(agent: str, target: float, pod_m: float, stabilisation_s: float) -> ScalingAgent:
    behavior = Behavior(down_stabilisation_s=stabilisation_s)
    return HPA(target, pod_m, behavior=behavior) if agent == "hpa" else RPSHPA(target, pod_m, behavior=behavior)


def hpa_name(agent: str, target: float, pod_m: float, stabilisation_s: float) -> str:
    """Name of a setting of HPA; the usual pods go unnamed."""
    name = f"{'cpu' if agent == 'hpa' else 'rps'}-{100 * target:.0f}"
    return name if (pod_m, stabilisation_s) == _USUAL else f"{name}-{pod_m:.0f}m-{stabilisation_s:.0f}s"


def objective_name(objective: float) -> str:
    """Name of a setting of `rule+`."""
    return f"keep-{100 * objective:g}"


def _headroom(value: float) -> str:
    return f"headroom-{value:.3g}"


def _price(value: float) -> str:
    return f"price-{value:g}"


def _chosen_price(agent: str) -> str:
    return _price(AgentCard.model_validate_json(card_of(f"scaling-{agent}").read_bytes()).price)


CHOSEN: dict[str, Callable[[], str]] = {
    "rule": lambda: _headroom(RULE.headroom),
    "rule-horizontal": lambda: _headroom(RULE_HORIZONTAL.headroom),
    "rule+": lambda: objective_name(OBJECTIVE),
    "hpa": lambda: "cpu-80",
    "rps-hpa": lambda: "rps-80",
    "combined": lambda: _chosen_price("combined"),
    "dqn-vertical": lambda: _chosen_price("dqn-vertical"),
}
"""The setting that was chosen without the test split."""


SCALERS = ("rule", "rule+", "rule-horizontal", "combined", "hpa", "rps-hpa")
"""Agents that are played with noise and with wrong numbers: the others follow no rate, or no cost."""
COMPARED = ("rule", "rule+", "combined", "hpa", "rps-hpa")
"""Agents that are compared at equal attainment there."""
RESIZING = ("rule", "rule+", "combined")
"""Those of them that resize in place."""


def chosen_of(agent: str) -> list[Setting]:
    """The chosen setting, or the only one."""
    return [(name, made) for name, made in settings_of(agent) if agent not in CHOSEN or name == CHOSEN[agent]()]
