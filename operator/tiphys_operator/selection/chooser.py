"""The selector of a policy, kept between intervals, and the rules around it that no selector may break: margin and switches an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.selection import SelectSpec
from tiphys_models.cloud.score import DIVISORS, Divisors, Weights
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.planners.per_pod import make_candidate
from tiphys_models.planners.protocol import Planner
from tiphys_models.selectors.checkpoint import pack, unpack
from tiphys_models.selectors.protocol import Choice, Scored, Selector, overrule
from tiphys_models.selectors.registry import make_selector

HOUR_S = 3600.0
_PROMISE_NOTHING = (ChoiceReason.FALLBACK, ChoiceReason.EXPLORING)
UNIT: Divisors = DIVISORS["regime"]
"""What one unit of each part is: constants of the repository, so that weights mean the same everywhere."""


def user_weights(spec: SelectSpec) -> Weights:
    """Proportions that add up to 1."""
    w = spec.weights
    total = w.cost + w.energy + w.response + w.sla
    return Weights(w.cost / total, w.energy / total, w.response / total, w.sla / total)


def chooser_key(spec: SelectSpec) -> str:
    """What a selector's online state depends on."""
    w = spec.weights
    return f"{spec.by}|{','.join(spec.among)}|{w.cost},{w.energy},{w.response},{w.sla}"


@dataclass(frozen=True, slots=True)
class Held:
    """A choice after margin and limit."""

    candidate: str
    reason: ChoiceReason


def hold(
    choice: Choice, active: str, among: Sequence[str], margin_percent: int, per_hour: int, switches_at_s: Sequence[float], now_s: float
) -> Held:
    """The selector's candidate, or the active one where the advantage is too small or the hour's switches are used up.

    A selector that explores or distrusts itself promises nothing: the margin, which judges promises, does not hold it.
    """
    reason = ChoiceReason(choice.reason)
    if active not in among or choice.candidate == active:
        return Held(choice.candidate, reason)
    if reason not in _PROMISE_NOTHING:
        mine, other = choice.predicted.get(active), choice.predicted.get(choice.candidate)
        if mine is not None and other is not None and mine - other <= abs(mine) * margin_percent / 100:
            return Held(active, ChoiceReason.WITHIN_MARGIN)
    if sum(at_s > now_s - HOUR_S for at_s in switches_at_s) >= per_hour:
        return Held(active, ChoiceReason.SWITCH_LIMIT)
    return Held(choice.candidate, reason)


class Chooser:
    """One policy's selector and planners; made anew when what they depend on changes."""

    def __init__(self, spec: SelectSpec, learned: str = "") -> None:
        self.key = chooser_key(spec)
        self.weights = user_weights(spec)
        self.among = tuple(spec.among)
        self._selector: Selector = make_selector(str(spec.by), self.among, self.weights, UNIT, 0)
        self._planners: dict[str, Planner] = {}
        if learned:
            try:
                self._selector.restore(unpack(learned))
            except ArtifactRefused:
                self._selector = make_selector(str(spec.by), self.among, self.weights, UNIT, 0)

    def choose(
        self, decision: int, state: CloudState, tasks: Tasks, spec: SelectSpec, active: str, switches_at_s: Sequence[float]
    ) -> tuple[Held, Choice]:
        """The candidate to run, and what the selector said of all of them."""
        choice = self._selector.choose(decision, state, tasks, self.among)
        held = hold(choice, active, self.among, spec.margin_percent, spec.max_switches_per_hour, switches_at_s, state.time_s)
        if held.candidate != choice.candidate:
            overrule(self._selector, decision, held.candidate)
        return held, choice

    def planner(self, name: str) -> Planner:
        """Loaded when first needed."""
        if name not in self._planners:
            self._planners[name] = make_candidate(name)
        return self._planners[name]

    def learn(self, scored: Scored) -> None:
        """From a settled decision."""
        self._selector.learn(scored)

    def forget(self, decision: int) -> None:
        """Nothing will be measured of it."""
        self._selector.forget(decision)

    def online_state(self) -> str:
        """For the checkpoint."""
        return pack(self._selector.online_state())
