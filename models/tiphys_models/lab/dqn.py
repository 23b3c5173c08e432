"""Deep Q-learning in torch: targets by the double rule or by the maximum, the Huber loss, and targets that follow the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Values = Callable[[Tensor], Tensor]
"""Inputs to the value of every action."""
_IMPOSSIBLE = -1e9


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of transitions (input, action, reward, next input) to learn from."""

    inputs: Tensor
    action: Tensor
    reward: Tensor
    """Discounted up to `after`, where several steps lie between."""
    after: Tensor
    possible: Tensor | None = None
    """Actions that there are after; None: all."""
    going_on: Tensor | None = None
    """0 where the episode ended with the reward; None: it never does."""


def wanted(batch: Batch, target: Values, discount: float, online: Values | None = None) -> Tensor:
    """The reward and what follows: by the target's value of the action that `online` takes, or of the target's best."""
    with torch.no_grad():
        values = target(batch.after)
        if online is None:
            following = values.max(dim=1).values
        else:
            chosen = online(batch.after)
            if batch.possible is not None:
                chosen = chosen.masked_fill(~batch.possible, _IMPOSSIBLE)
            following = values.gather(1, chosen.argmax(dim=1, keepdim=True))[:, 0]
        return batch.reward + (discount if batch.going_on is None else discount * batch.going_on) * following


def loss(values: Tensor, batch: Batch, targets: Tensor) -> Tensor:
    """The Huber loss of the values of the actions taken."""
    return nn.functional.huber_loss(values.gather(1, batch.action[:, None])[:, 0], targets)


def follow(target: nn.Module, online: nn.Module, share: float) -> None:
    """Move the target's weights by this share towards the network's."""
    with torch.no_grad():
        for theirs, mine in zip(target.parameters(), online.parameters(), strict=True):
            theirs.lerp_(mine, share)
