"""The forecasters of LSTM+ACO and Decision-NN as torch trains them; `selection.planners` has the same forward passes in numpy.

Both are applied host by host with shared weights, so that a fleet may have any size. Both correct, rather than replace, what the list
of running tasks says: they start as exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.planners.decision_nn import WIDTH
from tiphys_models.selection.planners.lstm_aco import HIDDEN
from tiphys_models.selection.planners.seen import CHANNELS, FACTS, WINDOW


class Forecaster(Protocol):
    """series[batch, hosts, WINDOW, CHANNELS], facts[batch, hosts, FACTS], there[batch, hosts] -> utilisation[batch, hosts]."""

    def __call__(self, series: Tensor, facts: Tensor, there: Tensor) -> Tensor:
        """Where nothing is there, the result means nothing."""
        ...


class LstmForecaster(nn.Module):
    """An LSTM over a host's last intervals; its last state and the facts give the correction."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.lstm = nn.LSTM(CHANNELS, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN + FACTS, 1)
        _start_from_expected(self.out)

    def forward(self, series: Tensor, facts: Tensor, there: Tensor) -> Tensor:
        """See `Forecaster`; every host by itself."""
        rows = series.reshape(-1, WINDOW, CHANNELS)
        hidden = self.lstm(rows)[0][:, -1].reshape(*facts.shape[:-1], HIDDEN)
        return torch.sigmoid(self.out(torch.cat([hidden, facts], dim=-1))[..., 0])

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays in the form that `planners.lstm_aco` reads; torch's two biases are one."""
        lstm = dict(self.lstm.named_parameters())
        return _arrays(
            {
                "lstm.input": lstm["weight_ih_l0"].T,
                "lstm.hidden": lstm["weight_hh_l0"].T,
                "lstm.bias": lstm["bias_ih_l0"] + lstm["bias_hh_l0"],
                "out.weight": self.out.weight[0],
                "out.bias": self.out.bias,
            }
        )


class AttentionForecaster(nn.Module):
    """Busy hosts attend to each other; the published form, a matrix of hosts x hosts from a dense layer, fits one fleet only."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Linear(WINDOW * CHANNELS + FACTS, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mix = nn.Linear(2 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH + FACTS, 1)
        _start_from_expected(self.out)

    def forward(self, series: Tensor, facts: Tensor, there: Tensor) -> Tensor:
        """Utilisation of every host, attending to the other busy ones; implements `Forecaster`."""
        rows = torch.relu(self.embed(torch.cat([series.flatten(-2), facts], dim=-1)))
        likeness = self.query(rows) @ self.key(rows).transpose(-1, -2) / WIDTH**0.5
        attention = torch.softmax(likeness.masked_fill(~there[..., None, :], -1e9), dim=-1)
        mixed = torch.relu(self.mix(torch.cat([rows, attention @ self.value(rows)], dim=-1)))
        return torch.sigmoid(self.out(torch.cat([mixed, facts], dim=-1))[..., 0])

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays in the form that `planners.decision_nn` reads."""
        parts = {"embed": self.embed, "query": self.query, "key": self.key, "value": self.value, "mix": self.mix}
        tensors = {f"{name}.weight": part.weight.T for name, part in parts.items()}
        tensors |= {f"{name}.bias": part.bias for name, part in parts.items()}
        return _arrays(tensors | {"out.weight": self.out.weight[0], "out.bias": self.out.bias})


def _start_from_expected(out: nn.Linear) -> None:
    """The first fact is the logit of what the task list says."""
    with torch.no_grad():
        out.weight.zero_()
        out.weight[0, -FACTS] = 1.0
        out.bias.zero_()


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, FloatArray]:
    return {name: np.ascontiguousarray(tensor.detach().numpy(), np.float32) for name, tensor in tensors.items()}
