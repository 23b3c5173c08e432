"""What a plan is expected to add, in money, energy, responses and missed deadlines: the closed form, no simulator and no weights."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.outlook import expected_outcome
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

_Task = tuple[float, float, float]
"""Work, age and deadline of a task."""


def preview(state: CloudState, tasks: Tasks, plan: Plan, scheduling_s: float = 0.0) -> Outcome:
    """Everything until the tasks on the plan's hosts have ended, minus the same without the waiting tasks.

    A task that the plan leaves waiting counts as run alone on the cheapest host from the next interval on, and as a violation.
    """
    fleet, running, added = state.fleet, state.running, dict[int, list[_Task]]()
    for host, *task in zip(plan.host.tolist(), tasks.work_core_s.tolist(), tasks.age_s.tolist(), tasks.deadline_s.tolist(), strict=True):
        added.setdefault(host, []).append((task[0], task[1], task[2]))
    left = added.pop(UNPLACED, [])
    present: dict[int, list[_Task]] = {host: [] for host in added}
    columns = (running.remaining_core_s.tolist(), running.tasks.age_s.tolist(), running.tasks.deadline_s.tolist())
    for host, *task in zip(running.host.tolist(), *columns, strict=True):
        if host in present:
            present[host].append((task[0], task[1], task[2]))
    total = Outcome(usd=serverless_usd(scheduling_s))
    for host, new in added.items():
        kind = fleet.types[int(fleet.type_of[host])]
        start_s = scheduling_s + kind.latency_s + (0.0 if state.awake[host] else state.resume_s)
        old = present[host]
        total = total + expected_outcome(kind, *_columns([*old, *new]), state.interval_s, start_s)
        total = total - expected_outcome(kind, *_columns(old), state.interval_s)
    cheapest = min((fleet.types[t] for t in set(fleet.type_of.tolist())), key=lambda kind: kind.usd_per_hour)
    for work, age, deadline in left:
        alone = expected_outcome(cheapest, [work], [age + state.interval_s], [deadline], state.interval_s)
        total = total + alone + Outcome(violations=1.0)
    return total


def _columns(mine: Sequence[_Task]) -> tuple[Sequence[float], Sequence[float], Sequence[float]]:
    return [m[0] for m in mine], [m[1] for m in mine], [m[2] for m in mine]
