"""Where workloads are played: in this process, or on a Ray cluster; the results are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.train.rollouts import Roller, Rollout, Student, Task, play_here, play_one


@contextmanager
def roller(*, ray: bool) -> Iterator[Roller]:
    """A roller, and what it needs for as long as it is used."""
    if not ray:
        yield play_here
        return
    try:
        import ray as cluster  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput("--ray needs the extra `rollouts`: pip install 'tiphys[rollouts]'") from error
    cluster.init(log_to_driver=False, include_dashboard=False, ignore_reinit_error=True)
    try:
        yield RayRoller(cluster)
    finally:
        cluster.shutdown()


class RayRoller:
    """Plays each task as one Ray task; the student travels once a call."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self._play = cluster.remote(_play_elsewhere)

    def __call__(self, student: Student, tasks: Sequence[Task], *, costs: bool = False, seed: int | None = None) -> list[Rollout]:
        """Rollouts of `play_here`, computed by Ray tasks."""
        shared = self._cluster.put(student)
        waiting = [self._play.remote(shared, task, index, costs=costs, seed=seed) for index, task in enumerate(tasks)]
        return list(self._cluster.get(waiting, timeout=600))


def _play_elsewhere(student: Student, task: Task, index: int, *, costs: bool, seed: int | None) -> Rollout:
    """What arrives from another process is read-only, for which the simulator would be compiled once more, for minutes: copy it."""
    workload = task.workload
    arrays: dict[str, Any] = {f.name: value.copy() for f in fields(workload) if isinstance(value := getattr(workload, f.name), np.ndarray)}
    layers = tuple((weight.copy(), bias.copy()) for weight, bias in student.layers)
    own = replace(student, layers=layers, mean=student.mean.copy(), scale=student.scale.copy())
    return play_one(own, replace(task, workload=replace(workload, **arrays)), index, costs=costs, seed=seed)
