"""Binding policies by the names that the CRD, the command and the benchmarks use."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.binding.protocol import BindingPolicy
from tiphys_models.binding.rules import STATIC, SUMMARIES, StaticPolicy
from tiphys_models.domain.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A line of `tiphys policies`."""

    name: str
    summary: str
    learned: bool = False


def entries() -> tuple[PolicyEntry, ...]:
    """Those that this installation has."""
    return tuple(PolicyEntry(name, SUMMARIES[name]) for name in STATIC)


def make_policy(name: str) -> BindingPolicy:
    """The policy of that name; InvalidInput if there is none."""
    if name in STATIC:
        return StaticPolicy(name)
    raise InvalidInput(f"no binding policy is called {name!r}: there are {', '.join(e.name for e in entries())}")
