"""Networks of the gradient planners, as torch trains them; `arrays` gives what `planners.layers` and `planners.graph` serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tiphys_models.base.arrays import FloatArray

_LEAST_VARIANCE = 1e-8


class HostNetwork(nn.Module):
    """softplus, softplus, tanhshrink, linear: inputs of one host -> what its new tasks add."""

    def __init__(self, widths: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.ParameterList(_uniform(a, b, generator) for a, b in pairwise(widths))
        self.bias = nn.ParameterList(torch.zeros(b) for b in widths[1:])

    def forward(self, x: Tensor) -> Tensor:
        """rows x inputs -> rows x outputs."""
        activations = (functional.softplus, functional.softplus, functional.tanhshrink, lambda y: y)
        for weight, bias, activation in zip(self.weight, self.bias, activations, strict=True):
            x = activation(x @ weight + bias)
        return x

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays in the form that serves."""
        w = {f"w{i}": _array(p) for i, p in enumerate(self.weight)}
        return {**w, **{f"b{i}": _array(p) for i, p in enumerate(self.bias)}}


class NaturalNetwork(nn.Module):
    """Natural-parameter layers with ReLU between them: mean and variance; trained variances are softplus of free numbers."""

    def __init__(self, widths: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.ParameterList(_uniform(a, b, generator) for a, b in pairwise(widths))
        self.bias = nn.ParameterList(torch.zeros(b) for b in widths[1:])
        small = [0.01 * 2 / (a + b) for a, b in pairwise(widths)]
        self.weight_spread = nn.ParameterList(
            torch.full((a, b), float(np.log(np.expm1(s)))) for (a, b), s in zip(pairwise(widths), small, strict=True)
        )
        self.bias_spread = nn.ParameterList(torch.full((b,), -10.0) for b in widths[1:])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """rows x inputs -> mean and variance, rows x outputs."""
        m, v = x, torch.zeros_like(x)
        last = len(self.weight) - 1
        for i, (w, b) in enumerate(zip(self.weight, self.bias, strict=True)):
            s, c = functional.softplus(self.weight_spread[i]), functional.softplus(self.bias_spread[i])
            m, v = m @ w + b, v @ (s + w**2) + m**2 @ s + c
            if i < last:
                m, v = natural_relu(m, v)
        return m, v

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays in the form that serves, with the variances themselves."""
        found: dict[str, FloatArray] = {}
        for i in range(len(self.weight)):
            found |= {f"w{i}": _array(self.weight[i]), f"b{i}": _array(self.bias[i])}
            found |= {
                f"s{i}": _array(functional.softplus(self.weight_spread[i])),
                f"c{i}": _array(functional.softplus(self.bias_spread[i])),
            }
        return found


def natural_relu(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of max(0, x)."""
    t = torch.sigmoid(np.sqrt(8 / np.pi) * m / torch.sqrt(v))
    g = torch.sqrt(v / (2 * np.pi)) * torch.exp(-(m**2) / (2 * v))
    mean = t * m + g
    return mean, torch.clamp(t * (m**2 + v) + m * g - mean**2, min=_LEAST_VARIANCE)


def natural_sigmoid(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of sigmoid(x)."""
    a, c = 4 - 2 * np.sqrt(2), -np.log(np.sqrt(2) + 1)
    mean = torch.sigmoid(m / torch.sqrt(1 + np.pi * v / 8))
    raw = torch.sigmoid(a * (m + c) / torch.sqrt(1 + np.pi * a**2 * v / 8)) - mean**2
    return mean, torch.clamp(raw, min=_LEAST_VARIANCE)


class GraphNetwork(nn.Module):
    """Messages between host and task nodes over edges weighted by the decision; see `planners.graph`."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], rounds: int, generator: torch.Generator) -> None:
        super().__init__()
        self.rounds = rounds
        self.part = nn.ParameterDict({k: _uniform(*s, generator) if len(s) == 2 else torch.zeros(s) for k, s in shapes.items()})

    def forward(self, p: Tensor, hosts: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Batches of (tasks x hosts, hosts x inputs, tasks x inputs) -> per host [cost, slowdown], per task response."""
        w = self.part
        h = functional.leaky_relu(hosts @ w["host_in"] + w["host_in_b"])
        t = functional.leaky_relu(tasks @ w["task_in"] + w["task_in_b"])
        for k in range(self.rounds):
            h = functional.leaky_relu(h @ w[f"hh{k}"] + (p.transpose(-1, -2) @ t) @ w[f"ht{k}"] + w[f"h_b{k}"])
            t = functional.leaky_relu(t @ w[f"tt{k}"] + (p @ h) @ w[f"th{k}"] + w[f"t_b{k}"])
        return h @ w["host_out"], (t @ w["task_out"])[..., 0]

    def arrays(self) -> dict[str, FloatArray]:
        """Arrays in the form that serves."""
        return {name: _array(p) for name, p in self.part.items()}


def _uniform(a: int, b: int, generator: torch.Generator) -> Tensor:
    bound = np.sqrt(6 / (a + b))
    return (2 * torch.rand(a, b, generator=generator) - 1) * bound


def _array(tensor: Tensor) -> FloatArray:
    return np.asarray(tensor.detach().numpy(), np.float32)
