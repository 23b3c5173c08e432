"""Everything that one policy's selection must not forget, as JSON in one ConfigMap: a new leader goes on where the last one stopped."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from tiphys_models.api.comparison_memory import ComparisonMemory
from tiphys_models.api.selection import SelectionStatus
from tiphys_models.seats.seat import Group
from tiphys_operator.selection.history import History

TRACKED_MAX = 1500
"""Pods under account at once, about 150 bytes each; more are placed all the same, and not charged to a decision."""
FUNCTIONS_MAX = 256


class Remembered(BaseModel):
    """Base of what is kept."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Tracked(Remembered):
    """A pod under account."""

    function: str
    created_s: float
    due_s: float
    """Since creation; later than this is late."""
    decision: int | None = None
    """The decision that was in force when it was bound; None while it waits, and for pods bound before the first decision."""
    bound_s: float = 0.0
    """0 while it waits."""


class Profile(Remembered):
    """What pods of one function are like, learned from those that ended."""

    runs: int = 0
    run_s: float = 0.0
    """Moving mean from scheduled to ended."""
    cores: float = 0.0
    ram_mib: float = 0.0
    selector: tuple[tuple[str, str], ...] = ()
    arrivals: float = 0.0
    """Moving mean of arrivals in an interval."""


class Account(Remembered):
    """What a decision has cost so far."""

    candidate: str
    at_s: float
    tasks: int = 0
    """Waiting and expected when it was made."""
    promised: float | None = None
    """Predicted J when it was made."""
    generation: int = 0
    digest: str = ""
    """sha256 of the selector's weights."""
    group: Group = ""
    """The canary's group in whose comparison the decision counts; empty: in none."""
    block: int = 0
    usd: float = 0.0
    joules: float = 0.0
    response_s: float = 0.0
    late: int = 0
    pods: int = 0


class Memory(Remembered):
    """What one SchedulingPolicy's selection remembers."""

    generation: int = 0
    chooser: str = ""
    """Selector, candidates and weights for which `learned` was learned."""
    learned: str = ""
    """The selector's online state, packed."""
    interval: int = 0
    active: str = ""
    """The candidate that decides."""
    chosen: str = ""
    """Whom the selector would have decide, after margin and limit; in mode Active the same."""
    decided: int | None = None
    """The decision in force: pods that are bound now belong to it."""
    at_s: float = 0.0
    """Time of the last interval."""
    switches_at_s: list[float] = Field(default_factory=list)
    """When the selector named another candidate, obeyed or not."""
    status: SelectionStatus = Field(default_factory=SelectionStatus)
    tracked: dict[str, Tracked] = Field(default_factory=dict)
    profiles: dict[str, Profile] = Field(default_factory=dict)
    accounts: dict[int, Account] = Field(default_factory=dict)
    placed: list[tuple[int, str]] = Field(default_factory=list)
    """The previous plan: application of the mix and node of every task that it placed."""
    history: History = Field(default_factory=History)
    comparison: ComparisonMemory | None = None
    """The comparison of the last canary of `select`."""

    def dump(self) -> str:
        """The memory as JSON."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def load(text: str) -> Memory:
    """The memory read from JSON; an unreadable text gives an empty memory, which costs some intervals and no more."""
    try:
        memory = Memory.model_validate_json(text)
    except ValueError:
        return Memory()
    if memory.comparison is not None and not memory.comparison.sound:
        memory.comparison = None
    return memory
