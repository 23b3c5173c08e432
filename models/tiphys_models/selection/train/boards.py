"""Boards of the train split as tensors, for the surrogates of GOBI, GOSH and GRAF."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.planners.board import BATCH, HOST_INPUTS, TASK_INPUTS
from tiphys_models.selection.sim.boards import OUTCOMES, DecidedBoard, decided

EPISODES: tuple[tuple[str, int], ...] = (("stationary", 600), ("regime", 600))
"""Workloads and intervals per seed."""
SEEDS = 3


@cache
def training_boards(split: str = "train", seed: int = 0) -> tuple[DecidedBoard, ...]:
    """All decisions; kept, since three planners learn from the same."""
    return tuple(d for name, intervals in EPISODES for s in range(seed, seed + SEEDS) for d in decided(name, split, s, intervals))


def certain(boards: Sequence[DecidedBoard]) -> list[DecidedBoard]:
    """Boards whose columns were decided, not drawn."""
    return [d for d in boards if (d.chances.max(axis=1) == 1.0).all()]


def host_rows(boards: Sequence[DecidedBoard], rng: np.random.Generator, spare: int = 2) -> tuple[Tensor, Tensor]:
    """(inputs, outcomes) of every host that might have got tasks, and of a few that did not: their outcome is nothing."""
    inputs: list[FloatArray] = []
    outcomes: list[FloatArray] = []
    for d in boards:
        x = np.concatenate([d.board.host_inputs, d.chances.T @ d.board.task_inputs], axis=1)
        used = np.flatnonzero(d.chances.any(axis=0))
        rows = np.concatenate([used, rng.integers(0, len(x), spare)])
        inputs.append(x[rows])
        outcomes.append(d.per_host[rows])
    return _tensor(np.concatenate(inputs)), _tensor(np.concatenate(outcomes))


def graphs(boards: Sequence[DecidedBoard], rng: np.random.Generator, width: int = 24) -> tuple[Tensor, ...]:
    """(decision, hosts, tasks, per host, per task) padded to BATCH tasks and `width` hosts: those in use and a sample of the others."""
    count = len(boards)
    p, hosts, tasks = (
        np.zeros((count, BATCH, width)),
        np.zeros((count, width, len(HOST_INPUTS))),
        np.zeros((count, BATCH, len(TASK_INPUTS))),
    )
    per_host, per_task = np.zeros((count, width, OUTCOMES)), np.zeros((count, BATCH))
    for i, d in enumerate(boards):
        used = np.flatnonzero(d.chances.any(axis=0))
        others = rng.permutation(np.setdiff1d(np.arange(len(d.board.hosts)), used))[: width - len(used)]
        columns = np.concatenate([used, others])
        n, k = len(d.columns), len(columns)
        p[i, :n, :k] = d.chances[:, columns]
        hosts[i, :k], tasks[i, :n] = d.board.host_inputs[columns], d.board.task_inputs
        per_host[i, :k], per_task[i, :n] = d.per_host[columns], d.per_task
    return tuple(_tensor(a) for a in (p, hosts, tasks, per_host, per_task))


def _tensor(array: FloatArray) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.float32))
