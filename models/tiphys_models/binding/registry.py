"""Binding policies and agents by the names that the CRD, the command and the benchmarks use."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.binding.agent import Agent, load_agent
from tiphys_models.binding.learned import load_score
from tiphys_models.binding.protocol import BindingPolicy
from tiphys_models.binding.rules import STATIC, SUMMARIES, StaticPolicy
from tiphys_models.domain.errors import InvalidInput

_LEARNED = {"score": "A learned score: the chance of being in time, less a price of the capacity."}
_AGENTS = {
    "aset": "Names a binding policy every window, from pooled use; trained at one rate.",
    "aset-wide": "Names a binding policy every window, from pooled use; trained at many rates.",
}
LEARNED = (*_LEARNED, *_AGENTS)
NAMES = (*STATIC, *LEARNED)
"""Whatever a StreamPolicy may ask for, whether its weights are there or not."""


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A line of `tiphys policies`."""

    name: str
    summary: str
    learned: bool = False


def entries() -> tuple[PolicyEntry, ...]:
    """Those that this installation has; a learned one without weights cannot serve."""
    learned = {name: text for name, text in {**_LEARNED, **_AGENTS}.items() if (SHIPPED / f"{name}.json").exists()}
    return (*(PolicyEntry(name, SUMMARIES[name]) for name in STATIC), *(PolicyEntry(n, t, learned=True) for n, t in learned.items()))


def make_policy(name: str) -> BindingPolicy:
    """The policy of that name; InvalidInput if there is none."""
    if name in STATIC:
        return StaticPolicy(name)
    if name in _LEARNED and name in (e.name for e in entries()):
        return load_score(SHIPPED / f"{name}.json")
    fixed = [e.name for e in entries() if e.name not in _AGENTS]
    raise InvalidInput(f"no binding policy is called {name!r}: there are {', '.join(fixed)}")


def make_agent(name: str) -> Agent:
    """The agent of that name with its shipped weights; InvalidInput if there is none."""
    there = [e.name for e in entries() if e.name in _AGENTS]
    if name not in there:
        raise InvalidInput(f"no binding agent is called {name!r}: there are {', '.join(there) or 'none'}")
    return load_agent(SHIPPED / f"{name}.json")
