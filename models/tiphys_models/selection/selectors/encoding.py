"""States as vectors: pooled numbers that do not depend on how many hosts there are, and the paper's fixed layout.

Only what may be known goes in: expectations, ages, counts, observed CPU. `selection-general/2` is what learned selectors use, on any
cluster; `selection-paper/1` is MetaNet's (CPU, RAM and disk of every host; tasks pooled per application; tasks per host).
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks

GENERAL = "selection-general/2"
PAPER = "selection-paper/1"
_CLASSES = (1.6, 2.5)
"""Edges between tight, middle and loose deadlines, as multiples of the solo time."""


GENERAL_NAMES = (
    "waiting", "waiting_core_s", "waiting_largest_core_s", "waiting_age_s", "waiting_tight", "waiting_middle", "waiting_loose",
    "waiting_ram_gib",
    "running", "running_core_s", "running_age_s", "running_urgent", "active_hosts", "awake_empty_hosts", "cpu_active", "cpu_recent",
    "free_slots", "crowding", "resume_s",
)  # fmt: skip


def encode_general(state: CloudState, tasks: Tasks) -> FloatArray:
    """One vector, the order of `GENERAL_NAMES`, for any applications and host types; divided by constants that keep it near 0..3."""
    running, count = state.running, state.running_count()
    has = count > 0
    solo = np.maximum(tasks.work_core_s / 2, 1e-9)
    multiple = tasks.deadline_s / solo
    slack = running.tasks.deadline_s - running.tasks.age_s
    recent = state.history[-30:].sum(axis=1) if len(state.history) else np.zeros(1)
    return np.array([
        len(tasks) / 5, tasks.work_core_s.sum() / 50, tasks.work_core_s.max(initial=0) / 20, _mean(tasks.age_s) / 10,
        (multiple < _CLASSES[0]).sum() / 5, ((multiple >= _CLASSES[0]) & (multiple < _CLASSES[1])).sum() / 5,
        (multiple >= _CLASSES[1]).sum() / 5,
        tasks.ram_mib.sum() / 4096,
        len(running) / 10, running.remaining_core_s.sum() / 50, _mean(running.tasks.age_s) / 10,
        (slack < running.remaining_core_s / 2).sum() / 5,
        has.sum() / 5, (state.awake & ~has).sum() / 5, _mean(state.utilisation[has]), recent.mean() / 5,
        _free_slots(state).sum() / 5, _mean(count[has].astype(np.float64)) / 4, state.resume_s / 10,
    ], np.float64)  # fmt: skip


def _free_slots(state: CloudState) -> FloatArray:
    """Tasks that hosts in use could take without slowing anybody."""
    count = state.running_count()
    return np.where(count > 0, np.maximum(state.fleet.column("cores") / 2 - count, 0), 0)


def encode_paper(state: CloudState, tasks: Tasks) -> FloatArray:
    """CPU, RAM and disk share of every host; count, work, RAM and disk of active tasks per application; tasks per host."""
    fleet, count = state.fleet, len(state.applications)
    hosts = (
        state.utilisation,
        1 - state.free_ram_mib() / fleet.column("ram_mib"),
        1 - state.free_disk_mib() / fleet.column("disk_mib"),
    )
    pooled = np.zeros((4, count))
    for group in (tasks, state.running.tasks):
        for row, (values, scale) in enumerate(
            ((np.ones(len(group)), 5.0), (group.work_core_s, 50.0), (group.ram_mib, 4096.0), (group.disk_mib, 8192.0))
        ):
            pooled[row] += np.bincount(group.application, weights=values, minlength=count) / scale
    return np.concatenate([*hosts, pooled.ravel(), state.running_count() / 4]).astype(np.float64)


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0
