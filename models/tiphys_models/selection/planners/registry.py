"""Planners by the names that the CRD, the command and the benchmarks use; others come through entry points. A new one is an entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.seats.registry import Entry, Registry
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.protocol import Planner

GROUP = "tiphys.planners"
"""Entry point group of planners from other distributions: name -> a class or function without arguments."""
PAPER: tuple[str, ...] = ("arima-aco", "lstm-aco", "decision-nn", "semi-direct", "graf", "gobi", "gosh")
"""The seven planners of the MetaNet paper."""
FORECASTERS: tuple[str, ...] = PAPER[:4]
"""Planners that read how busy hosts were, and only of hosts with running tasks."""
HEURISTICS: tuple[str, ...] = ("cost-lean", "energy-lean", "one-per-host")
COMPARATORS: tuple[str, ...] = ("first-fit", "random-host")
"""Bars for the planners' own tests; never candidates of a selector."""

_HERE = __name__.rsplit(".", 1)[0]
_PLAIN = {
    "cost-lean": "CostLean",
    "energy-lean": "EnergyLean",
    "one-per-host": "OnePerHost",
    "first-fit": "FirstFit",
    "random-host": "RandomHost",
}
_MODULES = {"arima-aco": "arima_aco", "lstm-aco": "lstm_aco", "decision-nn": "decision_nn", "semi-direct": "semi_direct"}


def _reserved() -> tuple[str, ...]:
    """Names of placement policies: a candidate of `select.among` must be one or the other."""
    return PLACEMENT.names()


REGISTRY: Registry[Callable[[], Any]] = Registry(
    "planner",
    GROUP,
    (
        *(Entry(name, f"{_HERE}.heuristics:{made}") for name, made in _PLAIN.items()),
        *(
            Entry(name, f"{_HERE}.{_MODULES.get(name, name)}:make", learned=True, model="" if name == "arima-aco" else name)
            for name in PAPER
        ),
    ),
    reserved=_reserved,
)


class ForeignPlanner:
    """A planner of another package; what it answers is made a plan."""

    def __init__(self, planner: Any, name: str) -> None:
        self._planner, self.name = planner, name

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """See `Planner`; ValueError for anything but one existing host, or none, a task."""
        found = self._planner.assign(state, tasks, seed)
        host = np.asarray(getattr(found, "host", found))
        if host.shape != (len(tasks),) or (len(host) and host.dtype.kind not in "iu"):
            raise ValueError(f"{len(tasks)} tasks need as many hosts, not {host.dtype} {host.shape}")
        return Plan(host.astype(np.int64))


def adopted(planner: Any, name: str) -> Planner:
    """Any object with a method `assign` as a planner; InvalidInput for another one."""
    REGISTRY.needs(REGISTRY.entry(name) or Entry(name, ""), planner, "assign")
    return ForeignPlanner(planner, name)


def entries() -> tuple[Entry, ...]:
    """Our own that this installation has."""
    return tuple(e for e in REGISTRY.ours.values() if find_spec(e.target.partition(":")[0]) is not None)


def planner_names() -> tuple[str, ...]:
    """Ours, then those of other distributions; ours cannot be replaced."""
    return (*(e.name for e in entries()), *REGISTRY.foreign)


def candidates() -> tuple[str, ...]:
    """What a selector of ours chooses among: the paper's planners, then the heuristics."""
    there = {e.name for e in entries()}
    return tuple(name for name in (*PAPER, *HEURISTICS) if name in there)


def make_planner(name: str) -> Planner:
    """The planner of that name; InvalidInput if there is none, or it cannot be used."""
    if name not in planner_names():
        raise REGISTRY.unknown(name, planner_names())
    made = REGISTRY.make(name)
    return adopted(made, name) if name in REGISTRY.foreign else made  # type: ignore[return-value]


def make_planners(names: Sequence[str]) -> dict[str, Planner]:
    """Several, by name, in that order."""
    return {name: make_planner(name) for name in names}
