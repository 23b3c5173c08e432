"""Regression by minibatches: one step of descent, the weights that were best on held-out rows, and the two ways to go through rows."""

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


def descend(
    optimiser: torch.optim.Optimizer, loss: Tensor, *, clipped: tuple[nn.Module, float] | None = None,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> None:  # fmt: skip
    """One step down; `clipped`: a network whose gradient is no longer than so much."""
    optimiser.zero_grad()
    loss.backward()
    if clipped is not None:
        nn.utils.clip_grad_norm_(clipped[0].parameters(), clipped[1])
    optimiser.step()
    if schedule is not None:
        schedule.step()


class Best:
    """The weights with the lowest held-out loss so far; those at the beginning, until there are any."""

    def __init__(self, network: nn.Module, loss: float = float("inf")) -> None:
        self._network, self.loss, self.epoch, self.since = network, loss, 0, 0
        self._kept = deepcopy(network.state_dict())

    def offer(self, loss: float, epoch: int) -> bool:
        """Keep the network's weights if this is the lowest loss; else count how long there was none."""
        self.since += 1
        if not loss < self.loss:
            return False
        self.loss, self.epoch, self.since = loss, epoch, 0
        self._kept = deepcopy(self._network.state_dict())
        return True

    def restore(self) -> None:
        """Give the network the kept weights."""
        self._network.load_state_dict(self._kept)


def fit_sampled(
    network: nn.Module, data: Sequence[Tensor], loss: Callable[[list[Tensor]], Tensor], seed: int, *, epochs: int, batch: int
) -> None:
    """AdamW with a cosine of rates over batches drawn with replacement; the last weights stay."""
    rng, count = np.random.default_rng(seed), len(data[0])
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-3)
    steps = epochs * max(count // batch, 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        picked = torch.as_tensor(rng.integers(count, size=min(batch, count)))
        descend(optimiser, loss([column[picked] for column in data]), schedule=schedule)


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
    best = Best(network)
    for epoch in range(1, epochs + 1):
        for rows in train[torch.randperm(len(train), generator=generator)].split(batch):
            descend(optimiser, loss(*(column[rows] for column in data)), clipped=(network, 1.0), schedule=schedule)
        with torch.no_grad():
            losses = [float(loss(*(column[rows] for column in data))) * len(rows) for rows in held.split(4096)]
        found = float(np.sum(losses)) / len(held)
        best.offer(found, epoch)
        tell(f"epoch {epoch:>3}: held-out loss {found:.5f}")
    best.restore()
    return Fitted(count, epochs, best.epoch, best.loss)
