"""MetaNet as published: one estimate of the interval's cost a policy, the lowest is taken, every interval trains the network a little.

64-64 ReLU, sigmoid outputs times the largest cost seen of each policy, squared error of the de-normalised estimate on the executed
policy. The paper knows no weights: its cost is money a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts, card_of, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.network import Adam, Network, network_of, shapes_of
from tiphys_models.selection.cloud.bill import scheduling_s
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.checkpoint import fitting
from tiphys_models.selection.selectors.encoding import PAPER, encode_paper
from tiphys_models.selection.selectors.phi import Since
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector, SelectorFactory

INPUTS = 428
HIDDEN = 64
EXPLORE = 0.02
"""Share of decisions that take the second best: pure argmin never comes back to a policy that it over-estimates."""
MEMORY = 96
"""Tuples to draw from beside the newest; a checkpoint has to fit into a ConfigMap."""
BATCH = 32


def sigmoid(z: FloatArray) -> FloatArray:
    """Stable for any z."""
    return np.asarray(0.5 * (1 + np.tanh(z / 2)))


def estimate_slope(outputs: FloatArray, taken: FloatArray, phi: FloatArray, phi_max: FloatArray) -> FloatArray:
    """d(mean squared relative error of the executed policy's de-normalised estimate) / d(network outputs before the sigmoid).

    Errors count in units of the mean of `phi_max`: the same minimum, and a step size that does not depend on the currency.
    """
    rows, k = np.arange(len(phi)), taken.astype(np.int64)
    y = sigmoid(outputs[rows, k])
    slope = np.zeros_like(outputs)
    unit = phi_max.mean()
    slope[rows, k] = 2 / len(phi) * (y * phi_max[k] - phi) / unit**2 * phi_max[k] * y * (1 - y)
    return slope


@dataclass(frozen=True, slots=True)
class _Noted:
    """What a choice was made from."""

    since: Since
    tasks: int
    inputs: FloatArray


class MetaNetPaper:
    """MetaNet as published, a `Selector`; the module says how it learns."""

    name = "metanet-paper"

    def __init__(self, policies: tuple[str, ...], network: Network, phi_max: FloatArray, memory: FloatArray, seed: int) -> None:
        self._policies, self._network, self._seed = policies, network, seed
        self._phi_max: FloatArray = np.array(phi_max, np.float64)
        self._adam = Adam(network)
        self._memory: FloatArray = memory.astype(np.float32)[-MEMORY:]
        """Rows of (policy, phi, inputs), oldest first."""
        self._last: tuple[Since, FloatArray] | None = None

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """The lowest estimate, or now and then the second lowest."""
        known = [i for i, name in enumerate(self._policies) if name in candidates]
        if not known:
            return Choice(candidates[0], "Fallback")
        inputs = encode_paper(state, tasks)
        if len(inputs) != INPUTS:  # made for a hundred hosts and seven applications, and for nothing else
            return Choice(candidates[0], "Fallback")
        phi = sigmoid(self._network(inputs[None])[0]) * self._phi_max
        order = sorted(known, key=lambda i: (phi[i], i))
        explore = len(order) > 1 and np.random.default_rng((self._seed, decision)).random() < EXPLORE
        taken = order[1 if explore else 0]
        predicted = {self._policies[i]: float(phi[i]) for i in known}
        note = _Noted(Since.at(state, tasks, 0.0), len(tasks), inputs)
        return Choice(self._policies[taken], "Exploring" if explore else "BestPredicted", predicted, note=note)

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """Remembers that this candidate decides; implements `Selector.commit`."""
        noted: _Noted | None = choice.note
        if noted is None or candidate not in self._policies:
            return
        since = replace(noted.since, scheduling_s=scheduling_s(candidate, noted.tasks))
        self._last = (since, np.concatenate([[self._policies.index(candidate), 0.0], noted.inputs]).astype(np.float32))

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Learn from the interval that has just ended."""
        if self._last is None:
            return
        since, row = self._last
        self._last = None
        row[1] = since.phi(state, tasks)
        taken = int(row[0])
        self._phi_max[taken] = max(self._phi_max[taken], float(row[1]))
        rng = np.random.default_rng((self._seed, round(state.time_s), 1))
        replayed = self._memory[rng.integers(len(self._memory), size=min(BATCH - 1, len(self._memory)))] if len(self._memory) else row[None]
        self._train(np.vstack([row[None], replayed]).astype(np.float64))
        self._memory = np.vstack([self._memory, row[None]])[-MEMORY:]

    def _train(self, rows: FloatArray) -> None:
        activations = self._network.activations(rows[:, 2:])
        slope = estimate_slope(activations[-1], rows[:, 0], rows[:, 1], self._phi_max)
        self._adam.step(self._network.gradient(activations, slope))

    def learn(self, scored: Scored) -> None:
        """The paper's label is the interval's, not the decision's."""

    def forget(self, decision: int) -> None:
        """See `Selector`; the paper's label does not wait for tasks."""

    def online_state(self) -> dict[str, FloatArray]:
        """Network, largest costs and memory; the interval under way is lost by a restart, and the optimiser's moments start anew."""
        return {**self._network.arrays(), "phi_max": self._phi_max.copy(), "memory": self._memory.copy()}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """ArtifactRefused if it is another model's."""
        found = fitting(arrays, {**self.online_state(), "memory": np.zeros((0, INPUTS + 2))})
        self._phi_max, self._memory = found.pop("phi_max").astype(np.float64), found.pop("memory").astype(np.float32)
        self._network = network_of(found)
        self._adam, self._last = Adam(self._network), None


class PaperCard(Card):
    """What the card says besides."""

    candidates: tuple[str, ...]
    memory: int
    """Tuples of the training set that travel with the weights."""


def load(parts: Parts) -> SelectorFactory:
    """Factory of selectors from a checked artifact. The user's weights and divisors mean nothing to them."""
    card = read_card(parts, PaperCard)
    count = len(card.candidates)
    shapes = {**shapes_of((INPUTS, HIDDEN, HIDDEN, count)), "phi_max": (count,), "memory": (card.memory, INPUTS + 2)}
    arrays = check_tensors(parts, PAPER, shapes).arrays
    layers = {name: array for name, array in arrays.items() if name.startswith("net.")}

    def made(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> MetaNetPaper:
        return MetaNetPaper(card.candidates, network_of(layers), arrays["phi_max"].copy(), arrays["memory"].copy(), seed)

    return made


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
    """A selector with the shipped weights."""
    return load(read_parts(card_of("metanet-paper")))(candidates, weights, divisors, seed)
