"""The selectors' networks in torch: fully connected, ReLU between layers, the last one linear."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from tiphys_models.base.arrays import FloatArray


class Trunk(nn.Sequential):  # type: ignore[misc, unused-ignore]  # untyped where torch is not installed
    """Same shape as `selectors.network.Network`."""

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for index, (a, b) in enumerate(pairwise(widths)):
                layers += [nn.Linear(a, b)] if index == len(widths) - 2 else [nn.Linear(a, b), nn.ReLU()]
        super().__init__(*layers)

    def layers(self) -> list[tuple[FloatArray, FloatArray]]:
        """(weight[in, out], bias[out]) of every layer, for `Network`."""
        return [
            (np.ascontiguousarray(m.weight.detach().numpy().T), m.bias.detach().numpy().copy()) for m in self if isinstance(m, nn.Linear)
        ]

    def load_layers(self, layers: Sequence[tuple[FloatArray, FloatArray]]) -> None:
        """The counterpart of `layers`."""
        mine = [m for m in self if isinstance(m, nn.Linear)]
        with torch.no_grad():
            for m, (weight, bias) in zip(mine, layers, strict=True):
                m.weight.copy_(torch.as_tensor(weight.T))
                m.bias.copy_(torch.as_tensor(bias))
