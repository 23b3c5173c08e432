"""Where workloads are played: in this process, or on a Ray cluster; the results are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tiphys_models.domain.errors import InvalidInput
from tiphys_models.train.rollouts import Roller, Rollout, Student, Task, play_here, play_one


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
        self._play = cluster.remote(play_one)

    def __call__(self, student: Student, tasks: Sequence[Task], *, costs: bool = False, seed: int | None = None) -> list[Rollout]:
        """As `play_here`, elsewhere."""
        shared = self._cluster.put(student)
        waiting = [self._play.remote(shared, task, index, costs=costs, seed=seed) for index, task in enumerate(tasks)]
        return list(self._cluster.get(waiting, timeout=600))
