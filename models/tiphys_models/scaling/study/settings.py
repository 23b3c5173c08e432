"""The settings of every agent that the scaling study plays: points on its frontier, the same for all shapes and seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tiphys_models.artifacts.files import card_of
from tiphys_models.scaling.learned import AgentCard, load_agent
from tiphys_models.scaling.protocol import ScalingAgent
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.rules import HPA, Rule, RuleHorizontal
from tiphys_models.scaling.settings import RULE, RULE_HORIZONTAL

HEADROOMS = (0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0)
"""Times the calibrated one: the margin of a rule is its price."""
UTILISATIONS = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
Setting = tuple[str, ScalingAgent]


def settings_of(agent: str) -> list[Setting]:
    """(name, agent) of every point."""
    if agent == "rule":
        return [(_headroom(RULE.headroom * h), Rule(replace(RULE, headroom=RULE.headroom * h))) for h in HEADROOMS]
    if agent == "rule-horizontal":
        margin = RULE_HORIZONTAL.headroom
        return [(_headroom(margin * h), RuleHorizontal(replace(RULE_HORIZONTAL, headroom=margin * h))) for h in HEADROOMS]
    if agent == "hpa":
        return [(f"cpu-{100 * target:.0f}", HPA(target)) for target in UTILISATIONS]
    card = card_of(f"scaling-{agent}")
    if card.exists() and (prices := AgentCard.model_validate_json(card.read_bytes()).prices):
        return [(_price(price), load_agent(card, price)) for price, _ in prices]
    return [("only", make_agent(agent))]


def _headroom(value: float) -> str:
    return f"headroom-{value:.3g}"


def _price(value: float) -> str:
    return f"price-{value:g}"


def _chosen_price(agent: str) -> str:
    return _price(AgentCard.model_validate_json(card_of(f"scaling-{agent}").read_bytes()).price)


CHOSEN: dict[str, Callable[[], str]] = {
    "rule": lambda: _headroom(RULE.headroom),
    "rule-horizontal": lambda: _headroom(RULE_HORIZONTAL.headroom),
    "hpa": lambda: "cpu-80",
    "combined": lambda: _chosen_price("combined"),
    "dqn-vertical": lambda: _chosen_price("dqn-vertical"),
}
"""The setting that was chosen without the test split."""


def chosen_of(agent: str) -> list[Setting]:
    """The chosen setting, or the only one."""
    return [(name, made) for name, made in settings_of(agent) if agent not in CHOSEN or name == CHOSEN[agent]()]
