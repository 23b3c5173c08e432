"""Greedy on an objective: tasks one by one, largest first, each to the host that adds least; the seed of every search."""

from __future__ import annotations

import numpy as np

from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.score import Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

_ROUNDS = 3
"""Passes of single-task moves after the first placement; a second one rarely finds anything."""


def greedy(state: CloudState, tasks: Tasks, weights: Weights) -> Plan:
    """Largest work first, then single-task moves until none helps."""
    draft = Draft(state, tasks, weights)
    order = sorted(range(len(tasks)), key=lambda t: (-float(tasks.work_core_s[t]), t))
    for task in order:
        _put(draft, task)
    for _ in range(_ROUNDS):
        moved = [_move(draft, task) for task in order]
        if not any(moved):
            break
    return draft.plan()


def _put(draft: Draft, task: int) -> None:
    hosts = draft.candidates(task)
    if hosts:
        draft.place(task, hosts[int(np.argmin([draft.delta(task, h) for h in hosts]))])


def _move(draft: Draft, task: int) -> bool:
    before = int(draft.host[task])
    if before < 0:
        return False
    draft.take_back(task)
    _put(draft, task)
    return int(draft.host[task]) != before


def previous_plan(state: CloudState, tasks: Tasks) -> Plan:
    """Every task where the previous plan put its application (in turn, where it had several); others wait for `repair` or a search."""
    host = np.full(len(tasks), -1, np.int64)
    used: dict[int, int] = {}
    for task, application in enumerate(tasks.application.tolist()):
        places = state.previous_host[state.previous_application == application]
        if len(places):
            host[task] = places[used.get(application, 0) % len(places)]
            used[application] = used.get(application, 0) + 1
    return Plan(host)
