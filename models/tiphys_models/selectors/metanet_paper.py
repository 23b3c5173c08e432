"""MetaNet as published: one estimate of the interval's cost a policy, the lowest is taken, every interval trains the network a little.

64-64 ReLU, sigmoid outputs times the largest cost seen of each policy, squared error of the de-normalised estimate on the executed
policy. The paper knows no weights: its cost is money a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.artifacts.tensors import TensorCard, load_checked
from tiphys_models.cloud.bill import scheduling_s
from tiphys_models.cloud.score import Divisors, Weights
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.features.arrays import FloatArray
from tiphys_models.selectors.checkpoint import fitting
from tiphys_models.selectors.encoding import PAPER, encode_paper
from tiphys_models.selectors.network import Adam, Network, network_of, shapes_of
from tiphys_models.selectors.phi import Since
from tiphys_models.selectors.protocol import Choice, Scored

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


class MetaNetPaper:
    """See `Selector`."""

    name = "metanet-paper"

    def __init__(self, policies: tuple[str, ...], network: Network, phi_max: FloatArray, memory: FloatArray, seed: int) -> None:
        self._policies, self._network, self._seed = policies, network, seed
        self._phi_max: FloatArray = np.array(phi_max, np.float64)
        self._adam = Adam(network)
        self._memory: FloatArray = memory.astype(np.float32)[-MEMORY:]
        """Rows of (policy, phi, inputs), oldest first."""
        self._last: tuple[Since, FloatArray] | None = None
        self._newest = (-1, 0)
        """Number of the decision under way, and how many tasks it placed."""

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """First learn from the interval that has just ended, then take the lowest estimate."""
        self._finish(state, tasks)
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
        name = self._policies[taken]
        self._newest = (decision, len(tasks))
        self._last = (Since.at(state, tasks, scheduling_s(name, len(tasks))), np.concatenate([[taken, 0.0], inputs]).astype(np.float32))
        return Choice(name, "Exploring" if explore else "BestPredicted", {self._policies[i]: float(phi[i]) for i in known})

    def _finish(self, state: CloudState, tasks: Tasks) -> None:
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

    def overruled(self, decision: int, candidate: str) -> None:
        """See `Overrulable`."""
        newest, tasks = self._newest
        if self._last is None or newest != decision:
            return
        since, row = self._last
        if candidate not in self._policies:
            self._last = None
            return
        row[0] = self._policies.index(candidate)
        self._last = (replace(since, scheduling_s=scheduling_s(candidate, tasks)), row)

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


class PaperCard(TensorCard):
    """What the card says besides."""

    candidates: tuple[str, ...]
    memory: int
    """Tuples of the training set that travel with the weights."""


def make(candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> MetaNetPaper:
    """With the shipped weights. Weights and divisors mean nothing to it."""
    path = SHIPPED / "metanet-paper.json"
    card = PaperCard.model_validate_json(path.read_bytes())
    count = len(card.candidates)
    shapes = {**shapes_of((INPUTS, HIDDEN, HIDDEN, count)), "phi_max": (count,), "memory": (card.memory, INPUTS + 2)}
    arrays = load_checked(path, PAPER, shapes).arrays
    network = network_of({name: array for name, array in arrays.items() if name.startswith("net.")})
    return MetaNetPaper(card.candidates, network, arrays["phi_max"], arrays["memory"], seed)
