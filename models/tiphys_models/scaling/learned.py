"""Learned agents: a network's value of every action, the best possible one taken; numpy only, weights checked before use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts, card_of, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.artifacts.work import AGENT, check_work
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.base.network import Network, network_of, shapes_of
from tiphys_models.scaling.moves import Bins, Millicores, Moves, Multiples, Steps, VerticalSteps
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.rules import RuleSetting
from tiphys_models.scaling.seen import ServiceHistory


class AgentCard(Card):
    """What a card of a scaling agent says besides."""

    hidden: tuple[int, ...]
    dueling: bool
    margin: float = 0.0
    """The gate: the rule is kept unless an action is better by this much, in units of the network's values."""
    price: float = 1.0
    """Default price of a violated window, in what the service costs in a mean window."""
    prices: tuple[tuple[float, float], ...] = ()
    """(price, share of windows kept on the validation split by the worst shape that can be held to a share), rising."""
    rule: dict[str, float] | None = None
    """The rule that `combined` multiplies."""

    def price_for(self, attainment: float) -> float:
        """The cheapest that kept the wanted share on validation, else the highest."""
        enough = [price for price, kept in self.prices if kept >= attainment]
        return min(enough) if enough else self.prices[-1][0] if self.prices else self.price


@dataclass(frozen=True, slots=True)
class LearnedAgent:
    """A `ScalingAgent` that takes the possible action with the best value by its network."""

    name: str
    moves: Moves
    network: Network
    dueling: bool
    price: float
    margin: float = 0.0
    digest: str = ""
    """Digest of the weights, where they come from a file: decisions are recorded with it."""

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions that its moves offer."""
        return self.moves.actions

    def values(self, inputs: FloatArray) -> FloatArray:
        """Value of every action; a dueling network says how good the state is first, then what each action adds."""
        out = self.network(inputs)
        if not self.dueling:
            return out
        return np.asarray(out[:, :1] + out[:, 1:] - out[:, 1:].mean(axis=1, keepdims=True))

    def answer(self, seen: ServiceHistory) -> Answers:
        """The best possible action, or the one that stays, if the best is not better by the margin."""
        groups = len(seen) // self.moves.services
        look = self.moves.look(seen)
        values = self.values(self.moves.inputs(look, np.full(groups, self.price)))
        values = np.where(self.moves.possible(look), values, -np.inf)
        best = values.argmax(axis=1)
        rows = np.arange(groups)
        kept = (values[rows, best] - values[:, self.moves.stay] <= self.margin) & (best != self.moves.stay)
        taken = np.where(kept, self.moves.stay, best)
        found = self.moves.take(look, taken)
        shown = np.repeat(np.where(kept, -1, taken), self.moves.services)
        return Answers(found.replicas, found.cpu_m, shown, np.repeat(values, self.moves.services, axis=0))


def moves_of(name: str, rule: Mapping[str, float] | None = None) -> Moves:
    """The moves of an artifact's agent, by name; KeyError for one that is not known, TypeError for a rule that is none."""
    if name == "combined":
        return Multiples(setting_of(rule or {}))
    plain: dict[str, Moves] = {
        "dqn-vertical": VerticalSteps(),
        "dqn-vertical-published": Millicores(),
        "dqn-horizontal": Steps(1),
        "dqn-horizontal-3": Steps(3),
        "q-table": Bins(),
    }
    return plain[name]


def setting_of(values: Mapping[str, float]) -> RuleSetting:
    """The rule's setting as a card gives it."""
    whole = {"last", "keep"}
    return RuleSetting(**{k: int(v) if k in whole else float(v) for k, v in values.items()})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PricedAgent:
    """A checked artifact: the agent at its card's price, and at the price of any wanted attainment."""

    card: AgentCard
    agent: LearnedAgent

    def at(self, attainment: float) -> LearnedAgent:
        """The agent at the price for a wanted attainment of windows."""
        return replace(self.agent, price=self.card.price_for(attainment))


def load(parts: Parts) -> PricedAgent:
    """The agent made of an artifact's bytes; ArtifactRefused says why it must not serve."""
    card, origin = read_card(parts, AgentCard), parts.origin
    try:
        moves = moves_of(card.policy, card.rule)
    except (KeyError, TypeError) as error:
        raise ArtifactRefused("CardInvalid", f"{origin}: {error}") from error
    widths = (moves.width, *card.hidden, len(moves.actions) + card.dueling)
    check_work(widths, AGENT, origin)
    arrays = check_tensors(parts, moves.schema, shapes_of(widths)).arrays
    return PricedAgent(card, LearnedAgent(card.policy, moves, network_of(arrays), card.dueling, card.price, card.margin, card.sha256))


def load_agent(path: Path, price: float | None = None) -> LearnedAgent:
    """The agent made of a card with its weights beside it; ArtifactRefused says what is wrong with it."""
    agent = load(read_parts(path)).agent
    return agent if price is None else replace(agent, price=price)


def _shipped(name: str, attainment: float) -> LearnedAgent:
    return load(read_parts(card_of(f"scaling-{name}"))).at(attainment)


def combined(attainment: float) -> LearnedAgent:
    """Multiplies the rule's estimate, holds headroom, meets jumps that recur; a gate keeps the rule."""
    return _shipped("combined", attainment)


def dqn_vertical(attainment: float) -> LearnedAgent:
    """Multiplies the limit; the number of pods stays."""
    return _shipped("dqn-vertical", attainment)


def dqn_horizontal(attainment: float) -> LearnedAgent:
    """One pod fewer, the same or one more, by the published reward."""
    return _shipped("dqn-horizontal", attainment)


def q_table(attainment: float) -> LearnedAgent:
    """One pod fewer, the same or one more, by a table of CPU utilisation."""
    return _shipped("q-table", attainment)
