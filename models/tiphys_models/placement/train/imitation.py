"""A student that sees what the extender sees, taught by a teacher that knows everything: DAgger with costs for labels.

The student plays; at each of its decisions the teacher rolls every candidate node forward, with and without the call, and tells
what each choice would cost (Ross & Bagnell, "Reinforcement and Imitation Learning via Interactive No-Regret Learning", 2014).
The student then learns the expected cost given what it can see, not the teacher's choice: a teacher's argmax that rests on
what the student cannot see teaches it to herd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tiphys_models.base.arrays import FloatArray
from tiphys_models.lab.fit import descend
from tiphys_models.placement.train.net import layers_of, make_score_network, put_layers
from tiphys_models.placement.train.rollouts import Roller, Rollout, Student, Task, blind, input_scale, play_here


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """How the student is taught."""

    hidden: tuple[int, int] = (32, 16)
    inputs: int = 26
    iterations: int = 24
    epochs: int = 6
    """Passes over all data collected so far, per iteration."""
    batch: int = 512
    learning_rate: float = 2e-3
    cost_scale_s: float = 4.0
    """A difference in cost of this size is one unit of score."""
    window: int = 12
    """How many iterations' lessons are kept."""
    largest_cost_s: float = 40.0
    """Higher costs above the best candidate count as this: they are all simply bad."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Decisions among the same number of candidates, with the cost of each above the cheapest, in seconds."""

    inputs: FloatArray
    """float32[decisions, candidates, inputs], normalised."""
    regret_s: FloatArray


def lessons(student: Student, rollouts: Sequence[Rollout]) -> list[Lesson]:
    """What was seen and what each choice would have cost, one lesson for each number of candidates."""
    result = []
    for nodes in sorted({r.inputs.shape[1] for r in rollouts}):
        alike = [r for r in rollouts if r.inputs.shape[1] == nodes]
        inputs = np.concatenate([student.normalised(r.inputs) for r in alike])
        regret = np.concatenate([r.costs - r.costs.min(axis=1, keepdims=True) for r in alike])
        result.append(Lesson(inputs, regret.astype(np.float32)))
    return result


class Teaching:
    """A course that can be stopped after any iteration and taken up again."""

    def __init__(self, tasks: Callable[[int], Sequence[Task]], settings: ImitationSettings, seed: int, rolls: Roller = play_here) -> None:
        self.tasks, self.settings, self.seed, self.rolls = tasks, settings, seed, rolls
        self.network = make_score_network(settings.inputs, settings.hidden, seed)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=settings.learning_rate, weight_decay=1e-4)
        self.lessons: list[list[Lesson]] = []
        """Lessons of each of the last iterations: decisions with the costs of every choice."""
        self.iteration = 0
        self.student = blind(settings.inputs)

    def open(self) -> None:
        """A first look at the cluster, under random choices, gives the scale of the inputs and the first lesson."""
        rollouts = self.rolls(blind(self.settings.inputs), self.tasks(0), costs=True, seed=self.seed)
        mean, scale = input_scale(rollouts)
        self.student = Student(layers_of(self.network), mean, scale)
        self.lessons = [lessons(self.student, rollouts)]

    def resume(self, student: Student, iteration: int) -> None:
        """Go on with these weights: lessons are not stored, so those of the last iterations are played again, by this student."""
        put_layers(self.network, student.layers)
        self.student, self.iteration = student, iteration
        first = max(iteration - self.settings.window + 1, 1)
        self.lessons = [lessons(student, self.rolls(student, self.tasks(i), costs=True)) for i in range(first, iteration + 1)]

    def step(self) -> float:
        """Learn from the lessons, then play the next ones; the mean loss."""
        rng = np.random.default_rng([self.seed, self.iteration, 1])
        # the last third of the course settles down
        left = 1 - self.iteration / max(self.settings.iterations, 1)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * min(1.0, 0.1 + 2.7 * left)
        loss = _fit(self.network, self.optimizer, [x for some in self.lessons for x in some], self.settings, rng)
        self.student = Student(layers_of(self.network), self.student.mean, self.student.scale)
        self.iteration += 1
        if self.iteration < self.settings.iterations:
            played = self.rolls(self.student, self.tasks(self.iteration), costs=True)
            self.lessons = [*self.lessons, lessons(self.student, played)][-self.settings.window :]
        return loss


def _fit(
    network: torch.nn.Sequential,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[Lesson],
    settings: ImitationSettings,
    rng: np.random.Generator,
) -> float:
    groups = []
    for nodes in sorted({x.inputs.shape[1] for x in lessons}):
        alike = [x for x in lessons if x.inputs.shape[1] == nodes]
        groups.append([torch.from_numpy(np.concatenate(arrays)) for arrays in ([x.inputs for x in alike], [x.regret_s for x in alike])])
    total, batches = 0.0, 0
    for _ in range(settings.epochs):
        orders = [torch.from_numpy(rng.permutation(len(inputs))).split(settings.batch) for inputs, _ in groups]
        drawn = [(group, chosen) for group, order in enumerate(orders) for chosen in order]
        for index in rng.permutation(len(drawn)):
            group, chosen = drawn[index]
            inputs, regret = groups[group]
            loss = _loss(network(inputs[chosen])[..., 0], regret[chosen], settings)
            descend(optimizer, loss)
            total += float(loss.detach())
            batches += 1
    return total / batches


def _loss(scores: Tensor, regret_s: Tensor, settings: ImitationSettings) -> Tensor:
    """Scores should differ as costs do (robustly), and the softmax should expect little regret."""
    target = -regret_s.clamp(max=settings.largest_cost_s) / settings.cost_scale_s
    centred = scores - scores.mean(dim=-1, keepdim=True)
    wanted = target - target.mean(dim=-1, keepdim=True)
    fit = torch.nn.functional.smooth_l1_loss(centred, wanted, reduction="none").mean(dim=-1)
    expected = (torch.softmax(scores * 2.0, dim=-1) * -target).sum(dim=-1)
    return (0.3 * fit + expected).mean()
