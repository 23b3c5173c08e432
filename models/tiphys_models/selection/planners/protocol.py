"""What every candidate of a selector is: one function from a state and its waiting tasks to a plan."""

from __future__ import annotations

from typing import Protocol

from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks


class Planner(Protocol):
    """Deterministic: the same state, tasks and seed give the same plan, in every process. Callers pass `state.digest(tasks)` as seed.

    A planner keeps nothing between calls; what it has to remember (forecasters' history, the previous plan) is in the state.
    """

    @property
    def name(self) -> str:
        """Name of the planner in the CRD, the tables and the scheduling-time table."""
        ...

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task. Callers repair what does not fit (`cloud.repair`)."""
        ...
