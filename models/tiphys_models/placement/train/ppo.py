"""PPO with the clipped objective for one shared score network.

Two baselines. `critic` is the paper's: a second network, its mean over the nodes. `rollouts` is input-dependent (Mao et al.,
"Variance Reduction for Reinforcement Learning in Input-Driven Environments", ICLR 2019): several rollouts of the same arrivals,
and their mean return at the same decision. A critic cannot know which calls are still to come; the other rollouts met the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tiphys_models.base.arrays import FloatArray
from tiphys_models.lab.fit import descend
from tiphys_models.placement.sim.metrics import remaining
from tiphys_models.placement.train.net import layers_of, masked_log_softmax
from tiphys_models.placement.train.rollouts import Roller, Rollout, Student, Task, candidate_mask, padded, play_here


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """One update: `rollouts` episodes of one workload, `epochs` passes over them as one batch."""

    baseline: Literal["critic", "rollouts"]
    rollouts: int
    learning_rate: float
    clip: float = 0.2
    epochs: int = 5
    entropy: float = 0.0
    standardise: bool = False
    """Whether advantages are divided by their standard deviation."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did; figures before the first of its epochs unless they say otherwise."""

    mean_completion_s: float
    entropy: float
    approximate_kl: float
    """After the last epoch."""
    clipped: float
    """Share of decisions whose ratio was clipped in the last epoch."""


class Ppo:
    """Actor, optional critic, and the optimiser of both."""

    def __init__(self, actor: nn.Sequential, critic: nn.Sequential | None, settings: PpoSettings) -> None:
        if (critic is None) != (settings.baseline == "rollouts"):
            raise ValueError("a critic is needed exactly if the baseline is the critic")
        if settings.baseline == "rollouts" and settings.rollouts < 2:
            raise ValueError("the mean over rollouts is a baseline from two rollouts on")
        self.actor, self.critic, self.settings = actor, critic, settings
        parameters = [*actor.parameters(), *(critic.parameters() if critic else ())]
        self.optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate)

    def update(self, student: Student, task: Task, seed: int, rolls: Roller = play_here) -> tuple[Student, UpdateReport]:
        """Play, then learn; the student with the new weights."""
        current = Student(layers_of(self.actor), student.mean, student.scale, student.clip)
        rollouts = rolls(current, [task] * self.settings.rollouts, seed=seed)
        report = self.learn(current, rollouts)
        return Student(layers_of(self.actor), student.mean, student.scale, student.clip), report

    def learn(self, student: Student, rollouts: Sequence[Rollout]) -> UpdateReport:
        """All epochs over these episodes."""
        settings = self.settings
        nodes = rollouts[0].inputs.shape[1]
        inputs = torch.from_numpy(padded([student.normalised(r.inputs) for r in rollouts], nodes))
        mask = torch.from_numpy(candidate_mask(rollouts, nodes))
        chosen = torch.from_numpy(np.concatenate([r.chosen for r in rollouts]))
        old = torch.from_numpy(np.concatenate([r.log_p for r in rollouts]).astype(np.float32))
        to_go = returns(rollouts)
        target = torch.from_numpy(to_go.ravel().astype(np.float32))
        if self.critic is None:
            advantage = torch.from_numpy((to_go - to_go.mean(axis=0)).ravel().astype(np.float32))
        else:
            with torch.no_grad():
                advantage = target - _value(self.critic, inputs, mask)
        if settings.standardise:
            advantage = advantage / (advantage.std() + 1e-6)
        entropy = kl = clipped = 0.0
        for epoch in range(settings.epochs):
            log_all = masked_log_softmax(self.actor(inputs)[..., 0], mask)
            log_p = log_all.gather(1, chosen[:, None])[:, 0]
            ratio = torch.exp(log_p - old)
            bounded = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            loss = -torch.minimum(ratio * advantage, bounded * advantage).mean()
            spread = -(log_all.exp() * log_all.masked_fill(~mask, 0.0)).sum(dim=1).mean()
            if settings.entropy:
                loss = loss - settings.entropy * spread
            if self.critic is not None:
                loss = loss + (_value(self.critic, inputs, mask) - target).square().mean()
            descend(self.optimizer, loss)
            if epoch == 0:
                entropy = float(spread.detach())
            kl = float((old - log_p.detach()).mean())
            clipped = float((ratio.detach() != bounded.detach()).float().mean())
        completion = float(np.mean([r.records.completion_s.mean() for r in rollouts]))
        return UpdateReport(completion, entropy, kl, clipped)


def _value(critic: nn.Sequential, inputs: Tensor, mask: Tensor) -> Tensor:
    """The critic's mean over the candidates."""
    value: Tensor = (critic(inputs)[..., 0] * mask).sum(dim=1) / mask.sum(dim=1)
    return value


def returns(rollouts: Sequence[Rollout]) -> FloatArray:
    """[rollouts, calls]: minus the integral of calls in flight from each decision on, per call: in seconds, whatever the length."""
    return np.array([-remaining(r.records) / len(r.chosen) for r in rollouts])
