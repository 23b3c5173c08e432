"""Trains GRAF's graph network: squared error of cost and slowdown at hosts, and of responses at tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.lab.fit import fit
from tiphys_models.selection.planners.board import SCHEMA
from tiphys_models.selection.planners.graf import shapes
from tiphys_models.selection.planners.graph import ROUNDS
from tiphys_models.selection.train.boards import certain, graphs, training_boards
from tiphys_models.selection.train.surrogate_nets import GraphNetwork

EPOCHS, RATE = 20, 3e-3
_BLUR = 0.1
"""Share of a decision's weight spread over all hosts while learning: the search meets soft decisions."""


def train(directory: Path, seed: int, tell: Callable[[str], None]) -> Path:
    """Write graf.json and graf.safetensors."""
    generator = torch.Generator().manual_seed(seed)
    data = graphs(certain(training_boards()), np.random.default_rng(seed))
    network = GraphNetwork(shapes(), ROUNDS, generator)

    def loss(p: Tensor, hosts: Tensor, tasks: Tensor, per_host: Tensor, per_task: Tensor) -> Tensor:
        real = tasks[:, :, 0]
        present = hosts[:, :, 0] > 0
        share = _BLUR * torch.rand(len(p), 1, 1, generator=generator)
        soft = (1 - share) * p + share * (real[:, :, None] * present[:, None, :] / present.sum(dim=1)[:, None, None])
        host, task = network(soft, hosts, tasks)
        answer = per_host[:, :, (0, 2)]
        at_hosts = (((host - answer) / (1.0 + answer.abs())) ** 2)[present].mean()
        at_tasks = (((task - per_task) / (1.0 + per_task)) ** 2)[real > 0].mean()
        return at_hosts + at_tasks

    fitted = fit(network, data, loss, generator, tell, epochs=EPOCHS, rate=RATE, batch=256)
    write_tensors(directory, "graf", "graf", SCHEMA, network.arrays(), training={"seed": seed, **asdict(fitted)})
    return directory / "graf.json"
