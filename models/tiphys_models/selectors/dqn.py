"""DQN, the paper's second baseline: Q of every candidate from the general state and the weights; learns on while it serves.

A decision's reward is minus its share of J once its tasks have ended, in units of a typical decision; the next state is that of
the next decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.artifacts.tensors import TensorCard, load_checked
from tiphys_models.cloud.score import Divisors, Weights
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.features.arrays import FloatArray
from tiphys_models.selectors.checkpoint import fitting
from tiphys_models.selectors.encoding import GENERAL, GENERAL_NAMES, encode_general
from tiphys_models.selectors.network import Adam, Network, network_of, shapes_of
from tiphys_models.selectors.protocol import Choice, Scored
from tiphys_models.selectors.surrogate import COMPONENTS, UNITS, prices

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
    """See `Selector`."""

    name = "dqn"

    def __init__(self, policies: tuple[str, ...], network: Network, weights: Weights, divisors: Divisors, seed: int) -> None:
        self._policies, self._network, self._seed = policies, network, seed
        self._preferences = preferences(weights, divisors)
        self._unit = float((prices(weights, divisors) * UNITS).sum())
        self._target, self._adam, self._steps = Network(network.layers), Adam(network), 0
        width = network.layers[0][0].shape[0]
        self._memory = np.zeros((0, 2 * width + 2), np.float32)
        """Rows of (candidate, reward, inputs, next inputs)."""
        self._made: dict[int, _Step] = {}
        self._newest: int | None = None

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The highest Q, or now and then any candidate."""
        inputs = np.concatenate([encode_general(state, tasks), self._preferences])
        if self._newest in self._made:
            self._made[self._newest].following = inputs
            self._remember(self._newest)
        known = [i for i, name in enumerate(self._policies) if name in candidates]
        if not known:
            return Choice(candidates[0], "Fallback")
        q = self._network(inputs[None])[0]
        rng = np.random.default_rng((self._seed, decision))
        explore = rng.random() < EXPLORE
        taken = known[int(rng.integers(len(known)))] if explore else max(known, key=lambda i: (q[i], -i))
        self._made[decision], self._newest = _Step(inputs, taken), decision
        return Choice(self._policies[taken], "Exploring" if explore else "BestPredicted", {self._policies[i]: float(-q[i]) for i in known})

    def learn(self, scored: Scored) -> None:
        """One step a scored decision."""
        if scored.decision in self._made:
            self._made[scored.decision].reward = -scored.j / self._unit
            self._remember(scored.decision)

    def overruled(self, decision: int, candidate: str) -> None:
        """See `Overrulable`."""
        step = self._made.get(decision)
        if step is None:
            return
        if candidate in self._policies:
            step.taken = self._policies.index(candidate)
        else:
            del self._made[decision]

    def forget(self, decision: int) -> None:
        """See `Selector`."""
        self._made.pop(decision, None)

    def _remember(self, decision: int) -> None:
        step = self._made[decision]
        if step.reward is None or step.following is None:
            return
        del self._made[decision]
        row = np.concatenate([[step.taken, step.reward], step.inputs, step.following]).astype(np.float32)
        self._memory = np.vstack([self._memory, row[None]])[-MEMORY:]
        if len(self._memory) >= BATCH:
            rng = np.random.default_rng((self._seed, decision, 1))
            self._train(self._memory[rng.integers(len(self._memory), size=BATCH)].astype(np.float64))

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
        return {**self._network.arrays(), **self._target.arrays("target"), "memory": self._memory.copy()}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """ArtifactRefused if it is another model's."""
        found = fitting(arrays, {**self.online_state(), "memory": self._memory[:0]})
        self._memory = found.pop("memory").astype(np.float32)
        self._network, self._target = network_of(found), network_of(found, "target")
        self._adam = Adam(self._network)
        self._made.clear()
        self._newest = None


class DQNCard(TensorCard):
    """What the card says besides."""

    candidates: tuple[str, ...]


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> DQN:
    """With the shipped weights."""
    path = SHIPPED / "dqn.json"
    card = DQNCard.model_validate_json(path.read_bytes())
    width = len(GENERAL_NAMES) + COMPONENTS
    arrays = load_checked(path, GENERAL, shapes_of((width, HIDDEN, HIDDEN, len(card.candidates)))).arrays
    return DQN(card.candidates, network_of(arrays), weights, divisors, seed)
