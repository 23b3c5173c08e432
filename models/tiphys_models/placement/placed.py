"""A pod or call on a node: bound there, or reserved for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from tiphys_models.base.facts import PodFacts


@lru_cache(maxsize=4096)
def amounts(cpu_milli: int, memory_bytes: int) -> tuple[int, int]:
    """One tuple for all pods that ask for as much: clusters use few different requests, and have tens of thousands of pods."""
    return cpu_milli, memory_bytes


@dataclass(slots=True)
class Placement:
    """It counts on its node until it is finished, or until its time where it is only reserved."""

    uid: str
    node: str
    function: str
    cpu_milli: int
    memory_bytes: int
    in_flight: bool
    at_s: float
    expires_s: float  # infinite once bound
    booked: tuple[int, int] = (0, 0)
    """Milli-cores and bytes that its node's books hold for it: what it asks for, or all of the node where it asks for more."""
    passed: int = 0
    """Bins of lifetimes that it has been counted at risk in."""
    started_s: float = math.nan
    """When its main container started."""
    protected: bool = False
    """Node autoscalers must not evict it."""

    def is_for(self, facts: PodFacts) -> bool:
        """Whether a pod that was seen bound is exactly what this placement counts."""
        return (self.node, self.function, self.cpu_milli, self.memory_bytes, self.in_flight) == (
            facts.node, facts.function, facts.cpu_milli, facts.memory_bytes, facts.in_flight,
        )  # fmt: skip


class Bounded(Protocol):
    """Something of which a bounded number is kept."""

    evicted: int
    """How many were let go because there were too many."""

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What somebody has seen of a call that ran to its end, beyond the end itself; NaN and None where nobody has."""

    start_s: float = math.nan
    """Seconds from the placement until it computed."""
    core_seconds: float = math.nan
    """Processor time of the run, the start not counted."""
    cold: bool | None = None


UNSEEN = CallEnd()
