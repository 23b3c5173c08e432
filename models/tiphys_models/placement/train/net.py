"""The score network of FaaSRank (actor) and its critic: the same shape, weights of their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from tiphys_models.base.arrays import FloatArray

PAPER_HIDDEN = (32, 16)
"""Hidden widths of the paper: with 26 inputs 1,409 parameters a network, 2,818 for actor and critic."""

Layers = tuple[tuple[FloatArray, FloatArray], ...]


def make_score_network(inputs: int, hidden: tuple[int, ...], seed: int) -> nn.Sequential:
    """inputs -> hidden tanh -> 1; orthogonal start, a small last layer so that all nodes begin nearly equal."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[nn.Module] = []
    for a, b in pairwise((inputs, *hidden, 1)):
        layer = nn.Linear(a, b)
        nn.init.orthogonal_(layer.weight, gain=0.1 if b == 1 else 1.0, generator=generator)
        nn.init.zeros_(layer.bias)
        parts += [layer, nn.Tanh()]
    return nn.Sequential(*parts[:-1])


def layers_of(network: nn.Sequential) -> Layers:
    """(weight[in, out], bias[out]) of each layer, as artifacts and the simulator want them."""
    linear = [part for part in network if isinstance(part, nn.Linear)]
    return tuple((_array(part.weight).T.copy(), _array(part.bias).copy()) for part in linear)


def put_layers(network: nn.Sequential, layers: Layers) -> None:
    """Put these weights into the torch network: the reverse of `layers_of`."""
    linear = [part for part in network if isinstance(part, nn.Linear)]
    with torch.no_grad():
        for part, (weight, bias) in zip(linear, layers, strict=True):
            part.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
            part.bias.copy_(torch.from_numpy(bias))


def count_parameters(*networks: nn.Module) -> int:
    """How many trained numbers they have together."""
    return sum(p.numel() for network in networks for p in network.parameters())


def _array(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().numpy(), np.float32)


def masked_log_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """log P over candidates; where `mask` is false there is no candidate."""
    return torch.log_softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
