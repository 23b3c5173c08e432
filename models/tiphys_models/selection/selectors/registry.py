"""Selectors by the names that the CRD, the command and the benchmarks use; others come through entry points. A new one is an entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tiphys_models.artifacts.files import has_weights
from tiphys_models.base.arrays import FloatArray
from tiphys_models.seats.registry import Entry, Registry
from tiphys_models.selection.cloud.score import Divisors, Weights
from tiphys_models.selection.cloud.state import CloudState
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.selectors.protocol import Choice, Scored, Selector

GROUP = "tiphys.selectors"
"""Entry point group of selectors from other distributions: name -> `make(candidates, weights, divisors, seed)`."""

_HERE = __name__.rsplit(".", 1)[0]


def _entry(name: str, module: str, summary: str, *, learned: bool = False, live_only: bool = False) -> Entry:
    return Entry(name, f"{_HERE}.{module}:make", learned, name if learned else "", summary, live_only)


REGISTRY: Registry[Callable[..., Any]] = Registry(
    "selector",
    GROUP,
    (
        _entry("metanet", "metanet", "Predicted advantage over a fallback, corrected by what decisions really cost.", learned=True),
        _entry("metanet-paper", "metanet_paper", "MetaNet as published, for a hundred hosts exactly.", learned=True),
        _entry("dqn", "dqn", "Q of every candidate from the state and the weights; learns on while it serves.", learned=True),
        _entry("ucb", "ucb", "Upper confidence bounds on measured cost: no state, one arm a candidate."),
        _entry(
            "preview", "look_ahead", "Every candidate's plan, priced in closed form and corrected by what was measured.", live_only=True
        ),
    ),
)

PAPER_ONLY = ("metanet-paper",)
"""Played in tables; its input is made for a hundred hosts exactly, so no SchedulingPolicy may name it."""


class ForeignSelector:
    """A selector of another package. Only `choose` is asked of it: one without `learn` and the like learns nothing."""

    def __init__(self, selector: Any, name: str) -> None:
        self._selector, self.name = selector, name

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Passes the call on, if the other package's selector has this method; see `Selector.observe`."""
        self._tell("observe", state, tasks)

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """See `Selector`; ValueError for anything but one of the candidates, or for predictions that are no numbers.

        Plans that it made are not taken: a candidate's plan is its planner's business.
        """
        found = self._selector.choose(decision, state, tasks, candidates)
        choice = found if isinstance(found, Choice) else Choice(str(found), "BestPredicted")
        if choice.candidate not in candidates:
            raise ValueError(f"{choice.candidate!r} is not among the candidates")
        predicted = {name: float(choice.predicted[name]) for name in candidates if name in choice.predicted}
        if not all(map(math.isfinite, predicted.values())):
            raise ValueError("what it predicts is no number")
        return replace(choice, predicted=predicted, plans={})

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """Passes the call on, if the other package's selector has this method; see `Selector.commit`."""
        self._tell("commit", decision, choice, candidate)

    def learn(self, scored: Scored) -> None:
        """Passes the call on, if the other package's selector has this method; see `Selector.learn`."""
        self._tell("learn", scored)

    def forget(self, decision: int) -> None:
        """Passes the call on, if the other package's selector has this method; see `Selector.forget`."""
        self._tell("forget", decision)

    def online_state(self) -> dict[str, FloatArray]:
        """What the other package's selector has learned since it was loaded; empty if it has no such method."""
        return dict(self._selector.online_state()) if hasattr(self._selector, "online_state") else {}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Passes the call on, if the other package's selector has this method; see `Selector.restore`."""
        self._tell("restore", arrays)

    def _tell(self, method: str, *given: Any) -> None:
        if (told := getattr(self._selector, method, None)) is not None:
            told(*given)


def adopted(selector: Any, name: str) -> Selector:
    """Any object with a method `choose` as a selector; InvalidInput for another one."""
    REGISTRY.needs(REGISTRY.entry(name) or Entry(name, ""), selector, "choose")
    return ForeignSelector(selector, name)


def entries() -> tuple[Entry, ...]:
    """Our own that this installation has; a learned one without weights cannot choose."""
    return tuple(e for e in REGISTRY.ours.values() if not e.model or has_weights(e.model))


def selector_names() -> tuple[str, ...]:
    """Ours, then those of other distributions; ours cannot be replaced."""
    return (*(e.name for e in entries()), *REGISTRY.foreign)


def servable_names() -> tuple[str, ...]:
    """Names of the selectors that `select.by` may name."""
    return tuple(name for name in selector_names() if name not in PAPER_ONLY)


def make_selector(name: str, candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
    """The selector of that name; InvalidInput if there is none, or it cannot be used."""
    if name not in selector_names():
        raise REGISTRY.unknown(name, selector_names())
    made = REGISTRY.make(name, candidates, weights, divisors, seed)
    return adopted(made, name) if name in REGISTRY.foreign else made  # type: ignore[return-value]
