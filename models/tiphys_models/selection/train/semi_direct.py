"""Trains Semi-Direct's forecaster: likelihood of each busy host's utilisation in the coming interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.lab.fit import fit
from tiphys_models.selection.planners.semi_direct import HIDDEN, INPUTS, SCHEMA, WINDOW, host_series
from tiphys_models.selection.sim.forecasts import busy_hosts
from tiphys_models.selection.train.surrogate_nets import NaturalNetwork, natural_sigmoid

EPOCHS, RATE, BATCH = 60, 3e-3, 64
EPISODES: tuple[tuple[str, int], ...] = (("stationary", 1000), ("regime", 1000))
SEEDS = 12


def train(directory: Path, seed: int, tell: Callable[[str], None]) -> Path:
    """Write semi-direct.json and semi-direct.safetensors."""
    generator = torch.Generator().manual_seed(seed)
    parts = [busy_hosts(name, "train", range(seed, seed + SEEDS), intervals, host_series) for name, intervals in EPISODES]
    inputs, answers = (torch.from_numpy(np.concatenate(column).astype(np.float32)) for column in zip(*parts, strict=True))
    network = NaturalNetwork((INPUTS, *HIDDEN, 1), generator)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        m, v = (part[:, 0] for part in natural_sigmoid(*network(x)))
        v = v + 1e-4
        return (0.5 * ((m - y) ** 2 / v + torch.log(v))).mean()

    fitted = fit(network, (inputs, answers), loss, generator, tell, epochs=EPOCHS, rate=RATE, batch=BATCH)
    with torch.no_grad():
        m, v = (part[:, 0] for part in natural_sigmoid(*network(inputs)))
    evidence = {
        "seed": seed,
        **asdict(fitted),
        "rmse": _rmse(m, answers),
        "rmse_of_last_value": _rmse(inputs[:, WINDOW - 1], answers),
        "rmse_of_task_list": _rmse(inputs[:, WINDOW : WINDOW + 2].min(dim=1).values.clamp(max=1.0), answers),
        "share_within_one_deviation": round(float(((m - answers).abs() <= v.sqrt()).float().mean()), 4),
    }
    write_tensors(directory, "semi-direct", "semi-direct", SCHEMA, network.arrays(), training=evidence)
    return directory / "semi-direct.json"


def _rmse(found: Tensor, answers: Tensor) -> float:
    return round(float(((found - answers) ** 2).mean().sqrt()), 4)
