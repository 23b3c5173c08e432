"""What the pool's nodes can hold at all: no booking is larger than its node, and no tenant's larger than its share of all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tiphys_models.base.facts import NodeFacts


class NodeSizes:
    """Allocatable cpu and memory by node, exact integers."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, int]] = {}
        self._bounds: tuple[tuple[int, int], tuple[int, int]] | None = None
        self.cpu_milli = 0
        self.memory_bytes = 0

    def put(self, facts: NodeFacts) -> None:
        """A node joined, or changed."""
        self.drop(facts.name)
        self._of[facts.name] = facts.cpu_milli, facts.memory_bytes
        self._add(facts.cpu_milli, facts.memory_bytes)

    def drop(self, name: str) -> None:
        """Forget a node that left the pool."""
        if (size := self._of.pop(name, None)) is not None:
            self._add(-size[0], -size[1])

    def of(self, name: str) -> tuple[int, int] | None:
        """Milli-cores and bytes of a node; None: nobody has shown it."""
        return self._of.get(name)

    def holds(self, name: str, cpu_milli: int, memory_bytes: int) -> bool:
        """Whether the node could, were it empty. One that nobody has shown is taken for as large as the largest, the first for larger."""
        cpu, memory = self._of.get(name) or self._least_and_most()[1]
        return not self._of or (cpu_milli <= cpu and memory_bytes <= memory)

    def holding(self, names: Sequence[str], cpu_milli: int, memory_bytes: int) -> Sequence[str]:
        """Names of the nodes that could hold this much."""
        least_cpu, least_memory = self._least_and_most()[0]
        if cpu_milli <= least_cpu and memory_bytes <= least_memory:
            return names
        return [name for name in names if self.holds(name, cpu_milli, memory_bytes)]

    def _least_and_most(self) -> tuple[tuple[int, int], tuple[int, int]]:
        if self._bounds is None:
            cpus, memories = zip(*self._of.values(), strict=True) if self._of else ((0,), (0,))
            self._bounds = (min(cpus), min(memories)), (max(cpus), max(memories))
        return self._bounds

    def _add(self, cpu_milli: int, memory_bytes: int) -> None:
        self.cpu_milli += cpu_milli
        self.memory_bytes += memory_bytes
        self._bounds = None
