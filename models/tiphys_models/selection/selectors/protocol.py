"""What a selector is: it names a candidate from what may be known, and learns from what decisions cost once their tasks have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.cloud.score import Divisors, Outcome, Weights
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks

MOST_CANDIDATES = 64
"""Most candidates of a learned selector: what a choice costs grows with them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A named candidate, and why."""

    candidate: str
    reason: str
    """One of a few words: `BestPredicted`, `WithinMargin`, `SwitchLimit`, `Exploring`, `Fallback`."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    """J a candidate would add, where the selector predicts it."""
    thinking_s: float = 0.0
    """Charged seconds beyond the chosen planner's own: plans that were made to be looked at and not taken."""
    plans: Mapping[str, Plan] = field(default_factory=dict, compare=False, repr=False)
    """Plans that were made to be looked at, by candidate and before repair: whoever decides need not have them made again."""
    note: Any = field(default=None, compare=False, repr=False)
    """What the selector has to know of this choice when a candidate is committed to; nobody else's business."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A decision whose tasks have all ended."""

    decision: int
    """The interval it was made in."""
    outcome: Outcome
    j: float
    """The decision's share of J under the user's weights."""


class Selector(Protocol):
    """Deterministic given its own state and seed. It never sees true works, arrivals to come, or a planner's seed."""

    @property
    def name(self) -> str:
        """Name of the selector in the CRD and the tables."""
        ...

    def observe(self, state: CloudState, tasks: Tasks) -> None:
        """Called first in every interval in which tasks wait: what the state shows of the decision before may be learned."""
        ...

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """Pure: whoever asks twice gets the same choice, and nothing is remembered of it."""
        ...

    def commit(self, decision: int, choice: Choice, candidate: str) -> None:
        """This candidate decides, whether or not it is the chosen one: what is needed to learn from it later is remembered.

        `choice` is what `choose` said of the decision. Of a candidate that the selector does not know nothing is learned.
        """
        ...

    def learn(self, scored: Scored) -> None:
        """Called for every decision, in any order, some intervals after it."""
        ...

    def forget(self, decision: int) -> None:
        """Nothing will ever be measured of a decision: no task came of it, or nothing may be learned."""
        ...

    def online_state(self) -> dict[str, FloatArray]:
        """What it has learned since it was loaded: small arrays for a checkpoint; `restore` takes them back."""
        ...

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Continue from a checkpoint; ArtifactRefused if it does not fit."""
        ...


class SelectorFactory(Protocol):
    """What makes a selector of given weights, with its online state afresh."""

    def __call__(self, candidates: tuple[str, ...], weights: Weights, divisors: Divisors, seed: int) -> Selector:
        """A selector that has decided nothing yet."""
        ...


def take(selector: Selector, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
    """One decision where nobody stands between a selector and its candidate."""
    selector.observe(state, tasks)
    choice = selector.choose(decision, state, tasks, candidates)
    selector.commit(decision, choice, choice.candidate)
    return choice
