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

from tiphys_models.features.arrays import FloatArray
from tiphys_models.nets.score import layers_of, make_score_network, masked_log_softmax
from tiphys_models.train.rollouts import Rollout, Student, Task, candidate_mask, input_scale, padded, roll


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """How the student is taught."""

    hidden: tuple[int, int] = (32, 16)
    inputs: int = 26
    iterations: int = 8
    epochs: int = 6
    """Passes over all data collected so far, per iteration."""
    batch: int = 512
    learning_rate: float = 2e-3
    cost_scale_s: float = 4.0
    """A difference in cost of this size is one unit of score."""
    largest_cost_s: float = 40.0
    """Higher costs above the best candidate count as this: they are all simply bad."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Decisions with the cost of each candidate above the cheapest, in seconds."""

    inputs: FloatArray
    regret_s: FloatArray
    mask: FloatArray


def lesson(student: Student, rollouts: Sequence[Rollout]) -> Lesson:
    """What was seen and what each choice would have cost."""
    nodes = max(r.inputs.shape[1] for r in rollouts)
    inputs = padded([student.normalised(r.inputs) for r in rollouts], nodes)
    regret = padded([r.costs - r.costs.min(axis=1, keepdims=True) for r in rollouts], nodes)
    return Lesson(inputs, regret.astype(np.float32), candidate_mask(rollouts, nodes))


def teach(
    tasks: Callable[[int], Sequence[Task]],
    settings: ImitationSettings,
    seed: int,
    tell: Callable[[int, Student, float], None],
) -> Student:
    """Play, ask the teacher, learn, again. `tasks(i)` are the workloads of iteration i; `tell` hears of each student."""
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 1])
    network = make_score_network(settings.inputs, settings.hidden, seed)
    student = Student(layers_of(network), np.zeros(settings.inputs, np.float32), np.ones(settings.inputs, np.float32))
    # a first look at a cluster under random choices gives the scale, and with it the first lesson
    first = [roll(_blind(student), task, rng=rng, costs=True) for task in tasks(0)]
    mean, scale = input_scale(first)
    student = Student(student.layers, mean, scale)
    lessons = [lesson(student, first)]
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=1e-4)
    for iteration in range(settings.iterations):
        if iteration == 1:  # random play fills the cluster as no student will: scale by what the first student met
            mean, scale = input_scale(first)
        loss = _fit(network, optimizer, lessons, settings, rng)
        student = Student(layers_of(network), student.mean, student.scale)
        tell(iteration, student, loss)
        if iteration < settings.iterations - 1:
            lessons.append(lesson(student, [roll(student, task, costs=True) for task in tasks(iteration + 1)]))
    return student


def _blind(student: Student) -> Student:
    layers = tuple((np.zeros_like(weight), np.zeros_like(bias)) for weight, bias in student.layers)
    return Student(layers, student.mean, student.scale)


def _fit(
    network: torch.nn.Sequential, optimizer: torch.optim.Optimizer, lessons: Sequence[Lesson], settings: ImitationSettings, rng: np.random.Generator
) -> float:  # fmt: skip
    nodes = max(x.inputs.shape[1] for x in lessons)
    inputs = torch.from_numpy(padded([x.inputs for x in lessons], nodes))
    regret = torch.from_numpy(padded([x.regret_s for x in lessons], nodes))
    mask = torch.from_numpy(padded([x.mask for x in lessons], nodes).astype(bool))
    total, batches = 0.0, 0
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(len(inputs)))
        for chosen in order.split(settings.batch):
            loss = _loss(network(inputs[chosen])[..., 0], regret[chosen], mask[chosen], settings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
            batches += 1
    return total / batches


def _loss(scores: Tensor, regret_s: Tensor, mask: Tensor, settings: ImitationSettings) -> Tensor:
    """Scores should differ as costs do (robustly), and the softmax should expect little regret."""
    target = -regret_s.clamp(max=settings.largest_cost_s) / settings.cost_scale_s
    count = mask.sum(dim=-1, keepdim=True)
    scores = scores.masked_fill(~mask, 0.0)
    target = target.masked_fill(~mask, 0.0)
    centred = scores - scores.sum(dim=-1, keepdim=True) / count
    wanted = target - target.sum(dim=-1, keepdim=True) / count
    fit = torch.nn.functional.smooth_l1_loss(centred, wanted, reduction="none").masked_fill(~mask, 0.0).sum(dim=-1) / count[:, 0]
    probability = masked_log_softmax(scores * 2.0, mask).exp()
    expected = (probability * -target).sum(dim=-1)
    return (0.3 * fit + expected).mean()
