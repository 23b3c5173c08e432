"""Learned agents: a network's value of every action, the best possible one taken; numpy only, weights checked before use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from tiphys_models.artifacts.files import SHIPPED, read_part
from tiphys_models.artifacts.tensors import TensorCard, check_tensors
from tiphys_models.artifacts.work import AGENT, check_work
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray
from tiphys_models.scaling.moves import Bins, Millicores, Moves, Multiples, Sizes, Steps
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.rules import RuleSetting
from tiphys_models.scaling.seen import Seen
from tiphys_models.selectors.network import Network, network_of, shapes_of


class AgentCard(TensorCard):
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
    """See `ScalingAgent`."""

    name: str
    moves: Moves
    network: Network
    dueling: bool
    price: float
    margin: float = 0.0
    digest: str = ""
    """Of the weights, where they come from a file: what decisions are recorded with."""

    @property
    def actions(self) -> tuple[str, ...]:
        """Of its moves."""
        return self.moves.actions

    def values(self, inputs: FloatArray) -> FloatArray:
        """Of every action; a dueling network says how good the state is first, then what each action adds."""
        out = self.network(inputs)
        if not self.dueling:
            return out
        return np.asarray(out[:, :1] + out[:, 1:] - out[:, 1:].mean(axis=1, keepdims=True))

    def answer(self, seen: Seen) -> Answers:
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
    """By an artifact's agent; KeyError for one that is not known, TypeError for a rule that is none."""
    if name == "combined":
        return Multiples(setting_of(rule or {}))
    plain: dict[str, Moves] = {
        "dqn-vertical": Sizes(),
        "dqn-vertical-published": Millicores(),
        "dqn-horizontal": Steps(1),
        "dqn-horizontal-3": Steps(3),
        "q-table": Bins(),
    }
    return plain[name]


def setting_of(values: Mapping[str, float]) -> RuleSetting:
    """From a card."""
    whole = {"last", "keep"}
    return RuleSetting(**{k: int(v) if k in whole else float(v) for k, v in values.items()})  # type: ignore[arg-type]


def load_agent(path: Path, price: float | None = None) -> LearnedAgent:
    """From a card with its weights beside it; ArtifactRefused says what is wrong with it."""
    if path.suffix != ".json":
        raise ArtifactRefused("ForbiddenFormat", f"{path.name}: a model is named by its card, NAME.json")
    agent = check_agent(read_part(path), read_part(path.with_suffix(".safetensors")), path.name)
    return agent if price is None else replace(agent, price=price)


def check_agent(card_json: bytes, weights: bytes, origin: str, attainment: float | None = None) -> LearnedAgent:
    """The agent of these bytes, at the price for a wanted attainment or at the card's; ArtifactRefused says why it must not serve."""
    try:
        card = AgentCard.model_validate_json(card_json)
        moves = moves_of(card.policy, card.rule)
    except (ValidationError, KeyError, TypeError) as error:
        raise ArtifactRefused("CardInvalid", f"{origin}: {error}") from error
    outputs = len(moves.actions) + card.dueling
    widths = (moves.width, *card.hidden, outputs)
    check_work(widths, AGENT, origin)
    arrays = check_tensors(card_json, weights, origin, moves.schema, shapes_of(widths)).arrays
    chosen = card.price if attainment is None else card.price_for(attainment)
    return LearnedAgent(card.policy, moves, network_of(arrays), card.dueling, chosen, card.margin, card.sha256)


def _shipped(name: str, attainment: float) -> LearnedAgent:
    card = SHIPPED / f"scaling-{name}.json"
    return check_agent(read_part(card), read_part(card.with_suffix(".safetensors")), card.name, attainment)


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
