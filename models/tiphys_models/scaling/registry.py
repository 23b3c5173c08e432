"""Scaling agents by the names that the CRD, the command and the benchmarks use; others come through entry points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.scaling.protocol import ScalingAgent

GROUP = "tiphys.scaling_agents"
"""Entry point group of agents from other distributions: name -> a `Make`."""
Make = Callable[[float], ScalingAgent]
"""(wanted attainment of windows) -> agent; rules that have no such setting ignore it."""


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """Where an agent lives; imported only when it is asked for."""

    name: str
    module: str
    make: str
    learned: bool = False


_ENTRIES: dict[str, AgentEntry] = {
    e.name: e
    for e in (
        AgentEntry("naive", "settings", "naive"),
        AgentEntry("hpa", "settings", "hpa"),
        AgentEntry("rule-horizontal", "settings", "rule_horizontal"),
        AgentEntry("rule", "settings", "rule"),
        AgentEntry("q-table", "learned", "q_table", learned=True),
        AgentEntry("dqn-horizontal", "learned", "dqn_horizontal", learned=True),
        AgentEntry("dqn-vertical", "learned", "dqn_vertical", learned=True),
        AgentEntry("combined", "learned", "combined", learned=True),
    )
}


def entries() -> tuple[AgentEntry, ...]:
    """Those that this installation has; a learned one without weights cannot serve."""
    return tuple(e for e in _ENTRIES.values() if not e.learned or (SHIPPED / f"scaling-{e.name}.json").exists())


def agent_names() -> tuple[str, ...]:
    """Ours, then those of other distributions; ours cannot be replaced."""
    return (*(e.name for e in entries()), *sorted({p.name for p in entry_points(group=GROUP)} - set(_ENTRIES)))


def make_agent(name: str, attainment: float = 0.95) -> ScalingAgent:
    """The agent of that name; InvalidInput if there is none."""
    if name in _ENTRIES and _ENTRIES[name] in entries():
        entry = _ENTRIES[name]
        make: Make = getattr(import_module(f"{__package__}.{entry.module}"), entry.make)
        return make(attainment)
    for point in entry_points(group=GROUP):
        if point.name == name and name not in _ENTRIES:
            foreign: Make = point.load()
            return foreign(attainment)
    raise InvalidInput(f"no scaling agent is called {name!r}: there are {', '.join(agent_names())}")
