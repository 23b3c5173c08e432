"""A pod or call on a node: bound there, or reserved for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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

    def is_for(self, facts: PodFacts) -> bool:
        """Whether a pod that was seen bound is exactly what this placement counts."""
        return (self.node, self.function, self.cpu_milli, self.memory_bytes, self.in_flight) == (
            facts.node, facts.function, facts.cpu_milli, facts.memory_bytes, facts.in_flight,
        )  # fmt: skip
