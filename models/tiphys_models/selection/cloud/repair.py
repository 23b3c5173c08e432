"""Plans that can be carried out: hosts that lack room, or that a task may not use, are replaced."""

from __future__ import annotations

import numpy as np

from tiphys_models.selection.cloud.draft import Draft
from tiphys_models.selection.cloud.score import DEFAULT, Weights
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks


def infeasible(state: CloudState, tasks: Tasks, plan: Plan) -> list[int]:
    """Tasks of a plan, in order, that do not fit where it puts them beside those before them."""
    ram, disk = state.free_ram_mib(), state.free_disk_mib()
    wrong = []
    for task, host in enumerate(plan.host.tolist()):
        if host == UNPLACED:
            continue
        fits = (
            0 <= host < len(state.fleet)
            and tasks.ram_mib[task] <= ram[host]
            and tasks.disk_mib[task] <= disk[host]
            and (int(tasks.pools[task]) >> int(state.fleet.pool[host])) & 1
        )
        if not fits:
            wrong.append(task)
            continue
        ram[host] -= tasks.ram_mib[task]
        disk[host] -= tasks.disk_mib[task]
    return wrong


def repair(state: CloudState, tasks: Tasks, plan: Plan, weights: Weights = DEFAULT) -> Plan:
    """The plan itself if it is feasible; else its misplaced tasks go to the host that adds least to E, or wait if none has room.

    Tasks that the plan leaves waiting stay waiting: that is a choice, not a mistake.
    """
    wrong = infeasible(state, tasks, plan)
    if not wrong:
        return plan
    draft = Draft(state, tasks, weights)
    for task, host in enumerate(plan.host.tolist()):
        if host != UNPLACED and task not in wrong:
            draft.place(task, host)
    for task in sorted(wrong, key=lambda t: (-float(tasks.ram_mib[t]), t)):  # large ones first: they have the fewest places
        hosts = draft.candidates(task)
        if hosts:
            draft.place(task, hosts[int(np.argmin([draft.delta(task, h) for h in hosts]))])
    return draft.plan()
