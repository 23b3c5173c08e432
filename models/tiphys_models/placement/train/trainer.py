"""Training of placement: one course of a preset, keeping the best student by validation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.sim.workloads import MULTI
from tiphys_models.placement.train.checkpoints import Best, CurvePoint, read_checkpoint, write_checkpoint
from tiphys_models.placement.train.curriculum import lessons_of
from tiphys_models.placement.train.imitation import ImitationSettings, Teaching
from tiphys_models.placement.train.net import layers_of, make_score_network, put_layers
from tiphys_models.placement.train.ppo import Ppo, PpoSettings
from tiphys_models.placement.train.presets import Preset
from tiphys_models.placement.train.rollouts import Roller, Student, Task, blind, input_scale, play_here
from tiphys_models.placement.train.validation import Validation

HERD = 0.5
"""A student that sends more than this share of a workload to one of ten nodes herds; it is never the best."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The best student by validation, and how it came about."""

    preset: Preset
    seed: int
    student: Student
    best_pct: float
    best_step: int
    episodes: int
    seconds: float
    curve: Sequence[CurvePoint]


def train(
    preset: Preset,
    seed: int,
    tell: Callable[[CurvePoint], None],
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    rolls: Roller = play_here,
    validation: Validation | None = None,
) -> Trained:
    """Train one seed. With `checkpoint`, weights and curve are kept there after every validation; `resume` goes on from them."""
    torch.set_num_threads(1)  # the networks are too small for more
    torch.manual_seed(seed)
    check = validation or Validation(varied=preset.imitation is not None)
    course = _course(preset, seed, rolls)
    curve: list[CurvePoint] = []
    best: Best | None = None
    started = time.monotonic()
    if resume:
        if checkpoint is None:
            raise InvalidInput("to resume, name the directory that holds the checkpoint")
        step, best, curve, now = read_checkpoint(checkpoint, preset, seed)
        course.resume(now, step)
        started -= curve[-1].seconds if curve else 0.0
    else:
        course.open()
    since_best = 0
    for step in range(course.done, preset.steps):
        figure = course.step()
        measure = (step + 1) % preset.validate_every == 0 or step + 1 == preset.steps
        percent, fullest = check(course.student) if measure else (None, None)
        episodes = round((step + 1) * preset.episodes / preset.steps)
        curve.append(CurvePoint(step + 1, episodes, time.monotonic() - started, figure, percent, fullest))
        tell(curve[-1])
        if percent is None or fullest is None:
            continue
        since_best += 1
        if fullest <= HERD and (best is None or percent < best[0]):
            best, since_best = (percent, step + 1, course.student), 0
        if checkpoint is not None:
            write_checkpoint(checkpoint, preset, seed, course.student, best, curve)
        if since_best >= preset.patience:
            break
    if best is None:  # every validated student herds: say so by its figure, and let the caller judge
        best = (float("inf"), len(curve), course.student)
    return Trained(preset, seed, best[2], best[0], best[1], curve[-1].episodes, time.monotonic() - started, curve)


def _course(preset: Preset, seed: int, rolls: Roller) -> _PpoCourse | _TeacherCourse:
    if preset.ppo is not None:
        return _PpoCourse(preset, preset.ppo, seed, rolls)
    if preset.imitation is not None:
        return _TeacherCourse(preset, preset.imitation, seed, rolls)
    raise ValueError(f"preset {preset.name} does not say how to train")


class _PpoCourse:
    def __init__(self, preset: Preset, ppo: PpoSettings, seed: int, rolls: Roller) -> None:
        actor = make_score_network(preset.inputs, preset.hidden, seed)
        critic = make_score_network(preset.inputs, preset.hidden, seed + 1_000_003) if ppo.baseline == "critic" else None
        self._ppo = Ppo(actor, critic, ppo)
        self._preset, self._seed, self._rolls = preset, seed, rolls
        self.done = 0
        self.student = blind(preset.inputs)

    def open(self) -> None:
        """Scale the inputs by what random choices meet on the ten workloads."""
        mean, scale = input_scale(self._rolls(blind(self._preset.inputs), self._look(0), seed=self._seed))
        self.student = Student(layers_of(self._ppo.actor), mean, scale)

    def resume(self, student: Student, step: int) -> None:
        """Weights go on; the optimiser's moments begin anew."""
        put_layers(self._ppo.actor, student.layers)
        self.student, self.done = student, step

    def step(self) -> float:
        """One PPO update on the next workload; returns its mean completion time."""
        # the ten workloads in turn, each the same arrivals every time it comes, as the paper repeats each 50 times
        tasks = self._look(0)
        task = tasks[self.done % len(tasks)]
        self.student, report = self._ppo.update(self.student, task, self._seed * 1_000_003 + self.done, self._rolls)
        self.done += 1
        return report.mean_completion_s

    def _look(self, _iteration: int) -> Sequence[Task]:
        only = self._preset.only
        return lessons_of(0, self._seed, size=1 if only else len(MULTI), varied=False, only=only)


class _TeacherCourse:
    def __init__(self, preset: Preset, imitation: ImitationSettings, seed: int, rolls: Roller) -> None:
        settings = replace(imitation, iterations=preset.steps)
        self._teaching = Teaching(lambda iteration: lessons_of(iteration, seed, only=preset.only), settings, seed, rolls)

    @property
    def done(self) -> int:
        return self._teaching.iteration

    @property
    def student(self) -> Student:
        return self._teaching.student

    def open(self) -> None:
        """Play the first lesson."""
        self._teaching.open()

    def resume(self, student: Student, step: int) -> None:
        """Weights go on, the last lessons are played again."""
        self._teaching.resume(student, step)

    def step(self) -> float:
        """One iteration; the loss."""
        return self._teaching.step()
