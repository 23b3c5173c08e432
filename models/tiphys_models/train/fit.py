"""Regression by minibatches: AdamW with step decay, and the weights of the best epoch on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

_HELD_OUT = 0.1


@dataclass(frozen=True, slots=True)
class Fitted:
    """Evidence for the card."""

    rows: int
    epochs: int
    best_epoch: int
    held_out_loss: float


def fit(
    network: nn.Module, data: Sequence[Tensor], loss: Callable[..., Tensor], generator: torch.Generator, tell: Callable[[str], None],
    *, epochs: int, rate: float, batch: int = 512, weight_decay: float = 1e-5,
) -> Fitted:  # fmt: skip
    """`loss(*rows of data)` is minimised; rows are independent, so a random tenth is held out."""
    count = len(data[0])
    order = torch.randperm(count, generator=generator)
    held, train = order[: int(_HELD_OUT * count)], order[int(_HELD_OUT * count) :]
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=weight_decay)
    steps = epochs * -(-len(train) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    best, best_epoch, kept = float("inf"), 0, deepcopy(network.state_dict())
    for epoch in range(1, epochs + 1):
        for rows in train[torch.randperm(len(train), generator=generator)].split(batch):
            optimiser.zero_grad()
            value = loss(*(column[rows] for column in data))
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            losses = [float(loss(*(column[rows] for column in data))) * len(rows) for rows in held.split(4096)]
        found = float(np.sum(losses)) / len(held)
        if found < best:
            best, best_epoch, kept = found, epoch, deepcopy(network.state_dict())
        tell(f"epoch {epoch:>3}: held-out loss {found:.5f}")
    network.load_state_dict(kept)
    return Fitted(count, epochs, best_epoch, best)
