"""DQN, the paper's second baseline: Q of every candidate from the general state and the weights; learns on while it serves.

A decision's reward is minus its share of J once its tasks have ended, in units of a typical decision; the next state is that of
the next decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import SHIPPED, Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.network import Adam, Network, network_of, shapes_of
from tiphys_models.base.replay import Replay
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.checkpoint import fitting
from tiphys_models.selection.selectors.encoding import GENERAL, GENERAL_NAMES, encode_general
from tiphys_models.selection.selectors.protocol import MOST_CANDIDATES, Choice, Scored, Selector, SelectorFactory
from tiphys_models.selection.selectors.surrogate import COMPONENTS, UNITS, prices

HIDDEN = 64
GAMMA = 0.9
EXPLORE = 0.05
BATCH = 32
SYNC = 100
"""Steps between copies of the network to its target."""
MEMORY = 600
"""Transitions; the usual 5,000 would not fit into a checkpoint."""


def preferences(weights: Weights, divisors: Divisors) -> FloatArray:
    """Prices as inputs: shares that add up to one, in units of a typical task."""
    worth = prices(weights, divisors) * UNITS
    return np.asarray(worth / worth.sum())


def target_slope(outputs: FloatArray, taken: FloatArray, wanted: FloatArray) -> FloatArray:
    """d(mean Huber loss of the taken candidates' Q) / d(network outputs)."""
    rows, k = np.arange(len(taken)), taken.astype(np.int64)
    slope = np.zeros_like(outputs)
    slope[rows, k] = np.clip(outputs[rows, k] - wanted, -1.0, 1.0) / len(taken)
    return slope


@dataclass(slots=True)
class _Step:
    """A decision on its way to becoming a transition."""

    inputs: FloatArray
    taken: int
    reward: float | None = None
    following: FloatArray | None = None


class DQN:
    """The DQN selector, a `Selector`; the module says how it learns."""

    name = "dqn"

    def __init__(self, policies: tuple[str, ...], network: Network, weights: Weights, divisors: Divisors, seed: int) -> None:
        self._policies, self._network, self._seed = policies, network, seed
        self._preferences = preferences(weights, divisors)
        self._unit = float((prices(weights, divisors) * UNITS).sum())
        self._target, self._adam, self._steps = Network(network.layers), Adam(network), 0
        width = network.layers[0][0].shape[0]
        self._memory = Replay(MEMORY, {"rows": ((2 * width + 2,), np.float32)})
        """Rows of (candidate, reward, inputs, next inputs)."""
        self._made: dict[int, _Step] = {}
        self._newest: int | None = None

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """This is the state that the newest decision has led to."""
        if self._newest in self._made:
            self._made[self._newest].following = self._inputs(state, tasks)
            self._remember(self._newest)

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The highest Q, or now and then any candidate."""
        known = [i for i, name in enumerate(self._policies) if name in candidates]
        if not known:
            return Choice(candidates[0], "Fallback")
        inputs = self._inputs(state, tasks)
        q = self._network(inputs[None])[0]
        # drawn from (seed, decision): a generator that goes on would be rewound by a restart of the operator (ADR 28)
        rng = np.random.default_rng((self._seed, decision))
        explore = rng.random() < EXPLORE
        taken = known[int(rng.integers(len(known)))] if explore else max(known, key=lambda i: (q[i], -i))
        predicted = {self._policies[i]: float(-q[i]) for i in known}
        return Choice(self._policies[taken], "Exploring" if explore else "BestPredicted", predicted, note=inputs)

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """Remembers that this candidate decides; implements `Selector.commit`."""
        if choice.note is None:
            return
        self._newest = decision
        if candidate in self._policies:
            self._made[decision] = _Step(choice.note, self._policies.index(candidate))

    def _inputs(self, state: CloudState, tasks: Tasks) -> FloatArray:
        return np.concatenate([encode_general(state, tasks), self._preferences])

    def learn(self, scored: Scored) -> None:
        """One step a scored decision."""
        if scored.decision in self._made:
            self._made[scored.decision].reward = -scored.j / self._unit
            self._remember(scored.decision)

    def forget(self, decision: int) -> None:
        """Forgets a decision that is never measured; implements `Selector.forget`."""
        self._made.pop(decision, None)

    def _remember(self, decision: int) -> None:
        step = self._made[decision]
        if step.reward is None or step.following is None:
            return
        del self._made[decision]
        row = np.concatenate([[step.taken, step.reward], step.inputs, step.following]).astype(np.float32)
        self._memory.add(rows=row[None])
        if len(self._memory) >= BATCH:
            rng = np.random.default_rng((self._seed, decision, 1))
            self._train(self._memory.in_order("rows")[self._memory.draw(BATCH, rng)].astype(np.float64))

    def _train(self, rows: FloatArray) -> None:
        width = (rows.shape[1] - 2) // 2
        wanted = rows[:, 1] + GAMMA * self._target(rows[:, 2 + width :]).max(axis=1)
        activations = self._network.activations(rows[:, 2 : 2 + width])
        self._adam.step(self._network.gradient(activations, target_slope(activations[-1], rows[:, 0], wanted)))
        self._steps += 1
        if self._steps % SYNC == 0:
            self._target = Network(self._network.layers)

    def online_state(self) -> dict[str, FloatArray]:
        """Both networks and the memory; open decisions are lost by a restart, and the optimiser's moments start anew."""
        return {**self._network.arrays(), **self._target.arrays("target"), "memory": self._memory.in_order("rows")}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """ArtifactRefused if it is another model's."""
        found = fitting(arrays, {**self.online_state(), "memory": self._memory["rows"][:0]})
        self._memory.clear()
        self._memory.add(rows=found.pop("memory")[-MEMORY:])
        self._network, self._target = network_of(found), network_of(found, "target")
        self._adam = Adam(self._network)
        self._made.clear()
        self._newest = None


class DQNCard(Card):
    """What the card says besides."""

    candidates: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_CANDIDATES)]


def load(parts: Parts) -> SelectorFactory:
    """Factory of selectors from a checked artifact; each one that it makes starts from its weights."""
    card = read_card(parts, DQNCard)
    width = len(GENERAL_NAMES) + COMPONENTS
    arrays = check_tensors(parts, GENERAL, shapes_of((width, HIDDEN, HIDDEN, len(card.candidates)))).arrays

    def made(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> DQN:
        return DQN(card.candidates, network_of(arrays), weights, divisors, seed)

    return made


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
    """A selector with the shipped weights."""
    return load(read_parts(SHIPPED / "dqn.json"))(candidates, weights, divisors, seed)
