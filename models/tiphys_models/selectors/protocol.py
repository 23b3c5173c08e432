"""What a selector is: it names a candidate from what may be known, and learns from what decisions cost once their tasks have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from tiphys_models.cloud.score import Outcome
from tiphys_models.cloud.state import CloudState
from tiphys_models.cloud.tasks import Tasks
from tiphys_models.features.arrays import FloatArray


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


@dataclass(frozen=True, slots=True)
class Scored:
    """A decision whose tasks have all ended."""

    decision: int
    """The interval it was made in."""
    outcome: Outcome
    j: float
    """Its share of J under the user's weights."""


class Selector(Protocol):
    """Deterministic given its own state and seed. It never sees true works, arrivals to come, or a planner's seed."""

    @property
    def name(self) -> str:
        """As in the CRD and the tables."""
        ...

    def choose(self, decision: int, state: CloudState, tasks: Tasks, candidates: tuple[str, ...]) -> Choice:
        """Called at every interval in which tasks wait; the selector remembers what it needs to learn from the decision later."""
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


@runtime_checkable
class Overrulable(Protocol):
    """What a selector also is that can be told of rules around it: margin and switches an hour."""

    def overruled(self, decision: int, candidate: str) -> None:
        """Right after `choose`: this candidate decides instead of the one it named. From now on everything is as if it had named it."""
        ...


def overrule(selector: Selector, decision: int, candidate: str) -> None:
    """Tell a selector what was done instead; one that cannot be told learns nothing from the decision, rather than something wrong."""
    if isinstance(selector, Overrulable):
        selector.overruled(decision, candidate)
    else:
        selector.forget(decision)
