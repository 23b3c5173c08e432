"""Small fully connected networks with a gradient and an optimiser of their own: what selectors learn with while they serve.

ReLU between layers, the last one linear; whoever needs a sigmoid puts its slope into the gradient. Tested against autograd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tiphys_models.base.arrays import FloatArray

Layer = tuple[FloatArray, FloatArray]
"""One dense layer: weight[in, out], bias[out]."""


class Network:
    """Mutable weights in float64."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers: list[Layer] = [(np.array(w, np.float64), np.array(b, np.float64)) for w, b in layers]

    def __call__(self, rows: FloatArray) -> FloatArray:
        """rows[n, in] -> [n, out]."""
        return self.activations(rows)[-1]

    def activations(self, rows: FloatArray) -> list[FloatArray]:
        """The input of every layer, and last the output."""
        found: list[FloatArray] = [np.asarray(rows, np.float64)]
        for index, (weight, bias) in enumerate(self.layers):
            z = found[-1] @ weight + bias
            found.append(z if index == len(self.layers) - 1 else np.maximum(z, 0.0))
        return found

    def gradient(self, activations: Sequence[FloatArray], slope: FloatArray) -> list[Layer]:
        """Gradient of a loss by all weights and biases, where `slope`[n, out] is its derivative by the output."""
        found: list[Layer] = []
        for index in reversed(range(len(self.layers))):
            below = activations[index]
            found.append((below.T @ slope, slope.sum(axis=0)))
            if index:
                slope = (slope @ self.layers[index][0].T) * (below > 0)
        return found[::-1]

    def arrays(self, prefix: str = "net") -> dict[str, FloatArray]:
        """Weights and biases by name, for artifacts and checkpoints."""
        return {f"{prefix}.{i}.{part}": array for i, layer in enumerate(self.layers) for part, array in zip(PARTS, layer, strict=True)}


PARTS = ("weight", "bias")


def network_of(arrays: dict[str, FloatArray], prefix: str = "net") -> Network:
    """The counterpart of `Network.arrays`."""
    count = sum(name.startswith(f"{prefix}.") for name in arrays) // 2
    return Network([(arrays[f"{prefix}.{i}.weight"], arrays[f"{prefix}.{i}.bias"]) for i in range(count)])


def shapes_of(widths: Sequence[int], prefix: str = "net") -> dict[str, tuple[int, ...]]:
    """What the arrays of a network of these widths must look like."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (a, b) in enumerate(pairwise(widths)):
        shapes[f"{prefix}.{i}.weight"], shapes[f"{prefix}.{i}.bias"] = (a, b), (b,)
    return shapes


@dataclass(frozen=True, slots=True)
class AdamRates:
    """Rates of the Adam optimiser: those of its original paper, but for the learning rate."""

    lr: float = 1e-3
    first: float = 0.9
    second: float = 0.999


class Adam:
    """Moments start anew with the process: they are forgotten within a thousand steps anyway."""

    def __init__(self, network: Network, rates: AdamRates = AdamRates()) -> None:
        self._network, self._rates, self._steps = network, rates, 0
        self._moments = [[(np.zeros_like(a), np.zeros_like(a)) for a in layer] for layer in network.layers]

    def step(self, gradient: Sequence[Layer]) -> None:
        """One update, in place."""
        r, self._steps = self._rates, self._steps + 1
        grown, spread = 1 - r.first**self._steps, 1 - r.second**self._steps
        for layer, moments, slopes in zip(self._network.layers, self._moments, gradient, strict=True):
            for array, (mean, square), g in zip(layer, moments, slopes, strict=True):
                mean[...] += (1 - r.first) * (g - mean)
                square[...] += (1 - r.second) * (g * g - square)
                array[...] -= r.lr * mean / grown / (np.sqrt(square / spread) + 1e-8)
