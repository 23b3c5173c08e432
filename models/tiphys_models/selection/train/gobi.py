"""Trains GOBI's surrogate: squared error of energy and response, host by host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.lab.fit import fit
from tiphys_models.selection.planners.board import HOST_INPUTS, SCHEMA, TASK_INPUTS
from tiphys_models.selection.planners.gobi import HIDDEN, OUTPUTS
from tiphys_models.selection.train.boards import host_rows, training_boards
from tiphys_models.selection.train.surrogate_nets import HostNetwork

EPOCHS, RATE = 25, 3e-3


def train(directory: Path, seed: int, tell: Callable[[str], None]) -> Path:
    """Write gobi.json and gobi.safetensors."""
    generator = torch.Generator().manual_seed(seed)
    inputs, outcomes = host_rows(training_boards(), np.random.default_rng(seed))
    answers = torch.stack([outcomes[:, 1], outcomes[:, 2] + outcomes[:, 3]], dim=1)
    network = HostNetwork((len(HOST_INPUTS) + len(TASK_INPUTS), *HIDDEN, len(OUTPUTS)), generator)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        # relative to the size of what is asked: a crowded host's seconds would drown the difference between two empty ones
        return (((network(x) - y) / (1.0 + y.abs())) ** 2).mean()

    fitted = fit(network, (inputs, answers), loss, generator, tell, epochs=EPOCHS, rate=RATE)
    write_tensors(directory, "gobi", "gobi", SCHEMA, network.arrays(), training={"seed": seed, **asdict(fitted)})
    return directory / "gobi.json"
