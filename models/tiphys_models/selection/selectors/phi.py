"""The paper's label: what an interval cost, divided by the tasks that ended in it.

Kept for `metanet-paper` only. It misleads (tasks that have not ended look free), which is why `metanet` scores decisions instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Since:
    """What has to be remembered of a decision until the next state is seen."""

    time_s: float
    present: int
    """Tasks that ran or waited."""
    scheduling_s: float

    @staticmethod
    def at(state: CloudState, tasks: Tasks, scheduling_s: float) -> Since:
        """What has to be remembered when a decision is taken."""
        return Since(state.time_s, len(state.running) + len(tasks), scheduling_s)

    def phi(self, state: CloudState, tasks: Tasks) -> float:
        """USD of hosts and scheduling since then, over the tasks that have ended (at least one), as states alone tell.

        Intervals in which nothing waits bring no decision and are counted with the one before them.
        """
        elapsed = round((state.time_s - self.time_s) / state.interval_s)
        used = state.history[-elapsed:] > 0 if elapsed > 0 else state.history[:0] > 0
        hosts_usd = float((used @ state.fleet.usd_per_s()).sum()) * state.interval_s
        left = int((tasks.age_s >= state.time_s - self.time_s).sum())
        ended = self.present - len(state.running) - left
        return (hosts_usd + serverless_usd(self.scheduling_s)) / max(1, ended)
