"""The paper's Q network in torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.paper import CHANNELS, DENSE, HISTORY, KERNEL, WIDTH
from tiphys_models.streams.rules import PAPER


class ConvQ(nn.Module):  # type: ignore[misc, unused-ignore]  # untyped where torch is not installed
    """The Q network of `streams.paper.PaperAgent`, with the same shape."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.conv = nn.ModuleList([nn.Conv1d(WIDTH, CHANNELS, KERNEL), nn.Conv1d(CHANNELS, CHANNELS, KERNEL)])
            steps = HISTORY - 2 * KERNEL + 2
            self.dense = nn.ModuleList([nn.Linear(CHANNELS * steps, DENSE), nn.Linear(DENSE, len(PAPER))])

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        """history[n, WIDTH, HISTORY] -> [n, policies]."""
        rows = torch.relu(self.conv[1](torch.relu(self.conv[0](history)))).flatten(1)
        found: torch.Tensor = self.dense[1](torch.relu(self.dense[0](rows)))
        return found

    def arrays(self) -> dict[str, FloatArray]:
        """Weights of the network, named as in `streams.paper.SHAPES`."""
        return {name: np.array(value.detach().numpy()) for name, value in self.state_dict().items()}
