"""ARIMA+ACO: the coming CPU of every busy host by ARIMA, then an ant colony."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.arima import forecast
from tiphys_models.selection.planners.colony import colony
from tiphys_models.selection.planners.fillings import Fillings
from tiphys_models.selection.planners.search import OBJECTIVE, seeds
from tiphys_models.selection.planners.seen import believe, look


@dataclass(frozen=True, slots=True)
class ArimaAco:
    """Nothing is trained: every call fits anew."""

    name: str = "arima-aco"

    def believed(self, state: CloudState) -> CloudState:
        """The state as its forecast has it."""
        seen = look(state)
        return believe(state, seen, forecast(state.history.T[seen.host]))

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A host for every waiting task; implements `Planner.assign`."""
        fillings = Fillings(self.believed(state), tasks, OBJECTIVE)
        return colony(fillings, seeds(fillings), seed).plan()


def make() -> ArimaAco:
    """Factory of the planner for the registry."""
    return ArimaAco()
