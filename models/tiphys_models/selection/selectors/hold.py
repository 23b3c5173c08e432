"""Rules around a selector that no selector may break: how much a switch must promise, and how many an hour may have. Pure.

The operator serves with them, and an episode of the simulator can be played with the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiphys_models.selection.selectors.protocol import Choice

HOUR_S = 3600.0
WITHIN_MARGIN, SWITCH_LIMIT = "WithinMargin", "SwitchLimit"
_PROMISE_NOTHING = ("Fallback", "Exploring")


@dataclass(frozen=True, slots=True)
class SwitchRules:
    """How reluctantly the candidate in force is left."""

    margin_percent: int
    """A switch must promise to save so much of the predicted cost of the candidate in force."""
    per_hour: int


@dataclass(frozen=True, slots=True)
class Held:
    """A choice after margin and limit."""

    candidate: str
    reason: str


def hold(choice: Choice, active: str, among: Sequence[str], rules: SwitchRules, switches_at_s: Sequence[float], now_s: float) -> Held:
    """The selector's candidate, or the active one where the advantage is too small or the hour's switches are used up.

    A selector that explores or distrusts itself promises nothing: the margin, which judges promises, does not hold it.
    """
    if active not in among or choice.candidate == active:
        return Held(choice.candidate, choice.reason)
    if choice.reason not in _PROMISE_NOTHING:
        former, other = choice.predicted.get(active), choice.predicted.get(choice.candidate)
        if former is not None and other is not None and former - other <= abs(former) * rules.margin_percent / 100:
            return Held(active, WITHIN_MARGIN)
    if sum(at_s > now_s - HOUR_S for at_s in switches_at_s) >= rules.per_hour:
        return Held(active, SWITCH_LIMIT)
    return Held(choice.candidate, choice.reason)
