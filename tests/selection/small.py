"""Small clouds by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.selection.cloud.hosts import B2S, B4MS, B8MS, Fleet, HostType, make_fleet
from tiphys_models.selection.cloud.state import CloudState, Running
from tiphys_models.selection.cloud.tasks import AIOTBENCH, ANY_POOL, Application, Tasks

KINDS: tuple[tuple[HostType, int], ...] = ((B2S, 4), (B4MS, 2), (B8MS, 2))
ONE = (Application("one", 10.0, 500.0, 1000.0),)


def tasks(
    *applications: int, multiple: float = 2.0, age_s: float = 0.0, pools: np.uint64 = ANY_POOL, apps: Sequence[Application] = AIOTBENCH
) -> Tasks:
    """Tasks of the mix by index."""
    mine = [apps[a] for a in applications]
    return Tasks(
        np.array(applications, np.int64),
        np.array([a.work_core_s for a in mine], np.float64),
        np.full(len(mine), age_s),
        np.array([a.deadline_s(multiple) for a in mine], np.float64),
        np.array([a.ram_mib for a in mine], np.float64),
        np.array([a.disk_mib for a in mine], np.float64),
        np.full(len(mine), pools),
    )  # fmt: skip


def state(running: Sequence[tuple[int, int]] = (), *, fleet: Fleet | None = None, used_core_s: float = 2.0, previous: Sequence[tuple[int, int]] = (), resume_s: float = 0.0) -> CloudState:  # fmt: skip
    """A cloud with (application, host) pairs running and (application, host) pairs in the previous plan."""
    fleet = fleet or make_fleet(KINDS)
    present = tasks(*(a for a, _ in running), age_s=3.0)
    host = np.array([h for _, h in running], np.int64)
    used = np.full(len(host), used_core_s)
    awake = np.bincount(host, minlength=len(fleet)) > 0
    return CloudState(
        100.0, 10.0, fleet, AIOTBENCH, Running(present, host, used, np.maximum(present.work_core_s - used, 0.1)), awake, resume_s,
        0.5 * awake, np.zeros((3, len(fleet))),
        np.array([a for a, _ in previous], np.int64), np.array([h for _, h in previous], np.int64),
    )  # fmt: skip
