"""Trains GOSH's surrogate: likelihood of what a host's new tasks added, under a normal of the network's mean and variance."""

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
from tiphys_models.selection.planners.gosh import ENERGY_PER_UNIT_J, HIDDEN, OBJECTIVE
from tiphys_models.selection.planners.surrogate import ENERGY_UNIT_J
from tiphys_models.selection.train.boards import certain, host_rows, training_boards
from tiphys_models.selection.train.surrogate_nets import NaturalNetwork

EPOCHS, RATE = 25, 3e-3


def train(directory: Path, seed: int, tell: Callable[[str], None]) -> Path:
    """Write gosh.json and gosh.safetensors."""
    generator = torch.Generator().manual_seed(seed)
    # where a task goes is not what its objective is unsure of, but how long it takes
    inputs, outcomes = host_rows(certain(training_boards()), np.random.default_rng(seed))
    answers = OBJECTIVE.energy * outcomes[:, 1] * ENERGY_UNIT_J / ENERGY_PER_UNIT_J + OBJECTIVE.violation * outcomes[:, 4]
    network = NaturalNetwork((len(HOST_INPUTS) + len(TASK_INPUTS), *HIDDEN, 1), generator)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        m, v = (part[:, 0] for part in network(x))
        # The published loss counts squared errors tenfold, which makes the variance ten times too large; the likelihood is calibrated.
        v = v + 1e-4
        return (0.5 * ((m - y) ** 2 / v + torch.log(v))).mean()

    fitted = fit(network, (inputs, answers), loss, generator, tell, epochs=EPOCHS, rate=RATE)
    with torch.no_grad():
        m, v = (part[:, 0] for part in network(inputs))
    used = inputs[:, len(HOST_INPUTS)] > 0
    inside = float((((m - answers).abs() <= torch.sqrt(v))[used]).float().mean())
    evidence = {"seed": seed, **asdict(fitted), "share_within_one_deviation": round(inside, 4)}
    write_tensors(directory, "gosh", "gosh", SCHEMA, network.arrays(), training=evidence)
    return directory / "gosh.json"
