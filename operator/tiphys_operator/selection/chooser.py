"""The selector of a policy, kept between intervals, on one seat with the candidate that decides where it may not."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

from tiphys_models.api.reasons import ChoiceReason
from tiphys_models.api.selection import SelectSpec
from tiphys_models.base.errors import InvalidInput
from tiphys_models.seats.modes import Mode
from tiphys_models.seats.seat import NO_ANSWER, Answered, Said, Seat
from tiphys_models.selection.cloud.score import DIVISORS, Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.per_pod import known_candidates
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.selectors.checkpoint import pack, unpack
from tiphys_models.selection.selectors.hold import Held, SwitchRules, hold
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector
from tiphys_models.selection.selectors.registry import REGISTRY as SELECTORS
from tiphys_models.selection.selectors.registry import servable_names
from tiphys_operator.selection.weights import SHIPPED_ONLY, SelectWeights

_log = logging.getLogger(__name__)
RULES: dict[Mode, str] = {
    "Off": ChoiceReason.NOT_ASKED,
    "Shadow": ChoiceReason.SHADOW,
    "Canary": ChoiceReason.CONTROL,
    "Active": ChoiceReason.SELECTOR_FAILED,
}
"""Why the rule's candidate decides, by mode; in a treated block of a canary it does so for the same reason as in Active."""
UNIT: Divisors = DIVISORS["regime"]
"""What one unit of each part is: constants of the repository, so that weights mean the same everywhere."""


def user_weights(spec: SelectSpec) -> Weights:
    """Proportions that add up to 1."""
    w = spec.weights
    total = w.cost + w.energy + w.response + w.sla
    return Weights(w.cost / total, w.energy / total, w.response / total, w.sla / total)


def chooser_key(spec: SelectSpec, models: SelectWeights = SHIPPED_ONLY) -> str:
    """What a selector's online state depends on."""
    w = spec.weights
    return f"{spec.by}|{','.join(spec.among)}|{w.cost},{w.energy},{w.response},{w.sla}{models.key}"


@dataclass(frozen=True, slots=True)
class Asked:
    """The question of an interval."""

    decision: int
    state: CloudState
    tasks: Tasks
    chosen: str
    """Candidate that the selector named last, after margin and limit; empty: none yet."""
    switches_at_s: Sequence[float]
    """When it named another one."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an interval's decision came to, before it is committed."""

    answered: Answered[Held]
    choice: Choice | None
    """What the selector said of all candidates; None if it was not asked, or failed."""
    selected: Held | None
    """The selector's candidate after margin and limit, obeyed or not."""


class Chooser:
    """One policy's selector and planners; made anew when what they depend on changes."""

    def __init__(self, spec: SelectSpec, learned: str = "", models: SelectWeights = SHIPPED_ONLY) -> None:
        self.key, self.models = chooser_key(spec, models), models
        self.weights = user_weights(spec)
        known, servable = known_candidates(), servable_names()
        self.among = tuple(name for name in spec.among if name in known)
        if not self.among:
            raise InvalidInput(f"nobody here has any candidate of select.among: there are {', '.join(known)}")
        if spec.by not in servable:
            raise SELECTORS.unknown(spec.by, servable)
        self._by = str(spec.by)
        self._selector: Selector = models.make_selector(self._by, self.among, self.weights, UNIT)
        self._planners: dict[str, Planner] = {}
        if learned:
            try:
                self._selector.restore(unpack(learned))
            except Exception:  # noqa: BLE001 - a checkpoint that fits another version of a package's selector: it begins anew
                self._selector = models.make_selector(self._by, self.among, self.weights, UNIT)

    def choose(self, asked: Asked, spec: SelectSpec, *, obeys: bool) -> Chosen:
        """The candidate that decides the interval, by mode and group, and the other decider's choice. The selector remembers none of it."""
        said: list[tuple[Choice, Held]] = []

        def rule(_: Asked) -> Said[Held]:
            named = self.rule_candidate(spec)
            return Said(Held(named, RULES[spec.mode]), named)

        def learned(asked: Asked) -> Said[Held]:
            state, tasks = deepcopy((asked.state, asked.tasks))  # whoever is only asked leaves nothing in what others decide by
            self._selector.observe(state, tasks)
            choice = self._selector.choose(asked.decision, state, tasks, self.among)
            rules = SwitchRules(spec.margin_percent, spec.max_switches_per_hour)
            held = hold(choice, asked.chosen, self.among, rules, asked.switches_at_s, asked.state.time_s)
            if held.candidate not in self.among:
                return Said(None, self._by, self.digest, NO_ANSWER)
            if held.reason not in set(ChoiceReason):  # a word of somebody else's: reasons are labels, and labels are bounded
                held = Held(held.candidate, ChoiceReason.BEST_PREDICTED)
            said.append((choice, held))
            return Said(held, self._by, self.digest)

        answered = Seat(rule, learned, spec.mode).answer(asked, obeys=obeys)
        choice, selected = said[0] if said else (None, None)
        return Chosen(answered, choice, selected)

    def rule_candidate(self, spec: SelectSpec) -> str:
        """The candidate that decides where the selector does not; the spec may name one of a package that is not installed here."""
        return spec.rule_candidate if spec.rule_candidate in self.among else self.among[0]

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """This candidate decides the interval: what the selector needs to learn from it is remembered."""
        with _told("commit"):
            self._selector.commit(decision, choice, candidate)

    @property
    def digest(self) -> str:
        """sha256 of the selector's weights; empty for one that has none."""
        weights = self.models.selector
        return weights.digest if weights is not None else str(getattr(self._selector, "digest", ""))

    def planner(self, name: str) -> Planner:
        """The planner of this name, with the weights that serve in this interval."""
        return self.models.planner(name, self._planners)

    def learn(self, scored: Scored) -> None:
        """The selector learns from a decision whose outcome is known."""
        with _told("learn"):
            self._selector.learn(scored)

    def forget(self, decision: int) -> None:
        """Nothing will be measured of it."""
        with _told("forget"):
            self._selector.forget(decision)

    def online_state(self) -> str:
        """The selector's learned state as text, for the checkpoint; empty where it has none that can be kept."""
        try:
            return pack(self._selector.online_state())
        except Exception as error:  # noqa: BLE001 - as below
            _failed("online_state", error)
            return ""


@contextmanager
def _told(what: str) -> Iterator[None]:
    """A selector that fails where nothing is asked of it has learned nothing: whoever decides the interval need not fail with it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a selector may be of another package
        _failed(what, error)


def _failed(what: str, error: Exception) -> None:
    _log.warning("a selector failed", extra={"fields": {"in": what, "error": type(error).__name__}})
