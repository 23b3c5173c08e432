"""Selectors by the names that the CRD, the command and the benchmarks use. A new selector is one line in `_ENTRIES`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.cloud.score import Divisors, Weights
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.selectors.protocol import Selector


class SelectorFactory(Protocol):
    """The `make` of a selector's module: learned ones load their shipped weights and start their online state afresh."""

    def __call__(self, candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
        """A selector that has decided nothing yet."""
        ...


@dataclass(frozen=True, slots=True)
class SelectorEntry:
    """Where a selector lives; imported only when it is asked for."""

    name: str
    module: str
    learned: bool
    live_only: bool = False
    """Makes every candidate's plan at every choice: affordable among heuristics, not in tables over all planners."""


_ENTRIES: dict[str, SelectorEntry] = {
    e.name: e
    for e in (
        SelectorEntry("metanet", "metanet", learned=True),
        SelectorEntry("metanet-paper", "metanet_paper", learned=True),
        SelectorEntry("dqn", "dqn", learned=True),
        SelectorEntry("ucb", "ucb", learned=False),
        SelectorEntry("preview", "look_ahead", learned=False, live_only=True),
    )
}


def entries() -> tuple[SelectorEntry, ...]:
    """Those that this installation has; a learned one without weights cannot choose."""
    return tuple(e for e in _ENTRIES.values() if not e.learned or (SHIPPED / f"{e.name}.json").exists())


def make_selector(name: str, candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
    """The selector of that name; InvalidInput if there is none."""
    entry = _ENTRIES.get(name)
    if entry is None or entry not in entries():
        raise InvalidInput(f"no selector is called {name!r}: there are {', '.join(e.name for e in entries())}")
    factory: SelectorFactory = import_module(f"{__package__}.{entry.module}").make
    return factory(candidates, weights, divisors, seed)
