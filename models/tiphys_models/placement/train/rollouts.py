"""Decisions made by a network in the simulator, with what training wants to know about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement.sim.episode import CallRecords, network_rule, new_tape, play
from tiphys_models.placement.sim.run import ARGMAX, SAMPLE
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import CallWorkload
from tiphys_models.placement.train.net import Layers

TRAIN_EPSILON = 1e-3
"""Scores closer than this are equal, the same as in the cards of the shipped models."""


@dataclass(frozen=True, slots=True)
class Student:
    """A network in training, with the frozen scale of its inputs."""

    layers: Layers
    mean: FloatArray
    scale: FloatArray
    clip: float = 5.0

    def normalised(self, inputs: FloatArray) -> FloatArray:
        """What the first layer sees."""
        scaled = np.clip((inputs - self.mean) / self.scale, -self.clip, self.clip)
        return np.where(np.isnan(scaled), 0.0, scaled).astype(np.float32)


def blind(inputs: int) -> Student:
    """A network of zeros: every candidate is worth the same, so sampled choices are uniform."""
    sizes = ((inputs, 1), (1, 1), (1, 1))
    layers = tuple((np.zeros(size, np.float32), np.zeros(size[1], np.float32)) for size in sizes)
    return Student(layers, np.zeros(inputs, np.float32), np.ones(inputs, np.float32))


@dataclass(frozen=True, slots=True)
class Rollout:
    """One workload played once."""

    inputs: FloatArray
    """float32[calls, nodes, inputs]; all nodes were candidates."""
    chosen: IntArray
    log_p: FloatArray
    costs: FloatArray
    """[calls, nodes] marginal seconds, empty unless asked for."""
    records: CallRecords


@dataclass(frozen=True, slots=True)
class Task:
    """A workload on a scenario; training scenarios lose no nodes."""

    workload: CallWorkload
    scenario: FaasScenario


def roll(student: Student, task: Task, *, rng: np.random.Generator | None = None, record: bool = True, costs: bool = False) -> Rollout:
    """Sampled choices with `rng`, the best ones without."""
    calls, nodes = len(task.workload), task.scenario.nodes
    rule = network_rule(student.layers, student.mean, student.scale, student.clip, TRAIN_EPSILON)
    uniform = None if rng is None else rng.uniform(size=calls)
    tape = new_tape(calls, nodes, len(student.mean), uniform=uniform, record=record, costs=costs)
    records = play(task.workload, rule, task.scenario, tape, ARGMAX if rng is None else SAMPLE)
    return Rollout(tape.inputs, tape.chosen, tape.log_p, tape.costs, records)


class Roller(Protocol):
    """Plays several tasks with one student, here or on other machines; the results come in the order of the tasks."""

    def __call__(self, student: Student, tasks: Sequence[Task], *, costs: bool = False, seed: int | None = None) -> list[Rollout]:
        """Best choices without a seed, sampled ones with it."""
        ...


def play_here(student: Student, tasks: Sequence[Task], *, costs: bool = False, seed: int | None = None) -> list[Rollout]:
    """One after another in this process."""
    return [play_one(student, task, index, costs=costs, seed=seed) for index, task in enumerate(tasks)]


def play_one(student: Student, task: Task, index: int, *, costs: bool, seed: int | None) -> Rollout:
    """The `index`-th of several tasks: its random choices depend on nothing else."""
    rng = None if seed is None else np.random.default_rng([seed, index])
    return roll(student, task, rng=rng, costs=costs)


def input_scale(rollouts: Sequence[Rollout]) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each input; a constant input keeps scale 1 of its own size."""
    rows = np.concatenate([r.inputs.reshape(-1, r.inputs.shape[-1]) for r in rollouts]).astype(np.float64)
    mean = np.nan_to_num(np.nanmean(rows, axis=0))
    deviation = np.nan_to_num(np.nanstd(rows, axis=0))
    return mean.astype(np.float32), np.where(deviation > 1e-6, deviation, np.maximum(np.abs(mean), 1.0)).astype(np.float32)


def padded(arrays: Sequence[FloatArray], nodes: int) -> FloatArray:
    """Rollouts of several fleet sizes as one array: missing candidates are zero."""
    return np.concatenate([np.pad(a, [(0, 0), (0, nodes - a.shape[1]), *[(0, 0)] * (a.ndim - 2)]) for a in arrays])


def candidate_mask(rollouts: Sequence[Rollout], nodes: int) -> BoolArray:
    """Which columns of `padded` are candidates."""
    return np.concatenate([np.tile(np.arange(nodes) < r.inputs.shape[1], (len(r.inputs), 1)) for r in rollouts])
