"""Planners by the names that the CRD, the command and the benchmarks use. A new planner is one line in `_FACTORIES`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from tiphys_models.domain.errors import InvalidInput
from tiphys_models.planners.protocol import Planner


@dataclass(frozen=True, slots=True)
class PlannerEntry:
    """Where a planner lives; imported only when it is asked for."""

    name: str
    module: str
    factory: str
    """A class or function without arguments; learned ones load their shipped weights."""
    learned: bool = False


PAPER: tuple[str, ...] = ("arima-aco", "lstm-aco", "decision-nn", "semi-direct", "graf", "gobi", "gosh")
"""MetaNet's seven."""
FORECASTERS: tuple[str, ...] = PAPER[:4]
"""Those that read how busy hosts were, and only of hosts with running tasks."""
HEURISTICS: tuple[str, ...] = ("cost-lean", "energy-lean", "one-per-host")
COMPARATORS: tuple[str, ...] = ("first-fit", "random-host")
"""Bars for the planners' own tests; never candidates of a selector."""

_ENTRIES: dict[str, PlannerEntry] = {
    e.name: e
    for e in (
        PlannerEntry("cost-lean", "heuristics", "CostLean"),
        PlannerEntry("energy-lean", "heuristics", "EnergyLean"),
        PlannerEntry("one-per-host", "heuristics", "OnePerHost"),
        PlannerEntry("first-fit", "heuristics", "FirstFit"),
        PlannerEntry("random-host", "heuristics", "RandomHost"),
        PlannerEntry("arima-aco", "arima_aco", "make", learned=True),
        PlannerEntry("lstm-aco", "lstm_aco", "make", learned=True),
        PlannerEntry("decision-nn", "decision_nn", "make", learned=True),
        PlannerEntry("semi-direct", "semi_direct", "make", learned=True),
        PlannerEntry("graf", "graf", "make", learned=True),
        PlannerEntry("gobi", "gobi", "make", learned=True),
        PlannerEntry("gosh", "gosh", "make", learned=True),
    )
}


def entries() -> tuple[PlannerEntry, ...]:
    """Those that this installation has."""
    return tuple(e for e in _ENTRIES.values() if find_spec(f"{__package__}.{e.module}") is not None)


def candidates() -> tuple[str, ...]:
    """What a selector chooses among: the paper's planners, then the heuristics."""
    there = {e.name for e in entries()}
    return tuple(name for name in (*PAPER, *HEURISTICS) if name in there)


def make_planner(name: str) -> Planner:
    """The planner of that name; InvalidInput if there is none."""
    entry = _ENTRIES.get(name)
    if entry is None or entry not in entries():
        raise InvalidInput(f"no planner is called {name!r}: there are {', '.join(e.name for e in entries())}")
    factory: Callable[[], Planner] = getattr(import_module(f"{__package__}.{entry.module}"), entry.factory)
    return factory()


def make_planners(names: Sequence[str]) -> dict[str, Planner]:
    """Several, by name, in that order."""
    return {name: make_planner(name) for name in names}
