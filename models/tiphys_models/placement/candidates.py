"""What a policy is shown: the candidates of one request, gathered out of all known nodes.

A policy reads columns, never objects; row i of every column belongs to `rows[i]`. The same view is built by the extender from
watches and Prometheus, by a snapshot file and by a simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.calls import OpenCalls

CORES, MEMORY_CAPACITY, MEMORY_REQUESTED, CPU_REQUESTED_MILLI, INFLIGHT, INFLIGHT_MEMORY = range(6)
"""Columns of `CandidateView.numbers` and of the table it is gathered from."""


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pod, or one call, that wants a node."""

    uid: str
    namespace: str
    function: str
    cpu_milli: int
    memory_bytes: int
    images: tuple[str, ...] = ()
    protected: bool = False
    """Node autoscalers must not evict it."""


@dataclass(frozen=True, slots=True)
class PlacementMemory:
    """What policies remember, derived from published placements only, so that two replicas agree."""

    newest_position: int
    """Position (in `CandidateView.position`'s order) of the node of the newest placement of a function pod; -1 before the first."""


class NodeColumns(Protocol):
    """The table of all known nodes, as far as views look into it."""

    name_hash: HashArray
    readings: FloatArray

    @property
    def position(self) -> IntArray: ...  # noqa: D102
    def images_present(self, images: Iterable[str], rows: IntArray) -> BoolArray: ...  # noqa: D102
    def __len__(self) -> int: ...


class Lives(Protocol):
    """What is known of how long pods live, and of when nodes will be empty; see `lives.NodeLives`."""

    def gone(self, application: str, now_s: float) -> FloatArray: ...  # noqa: D102
    def empty(self, rows: IntArray, now_s: float) -> FloatArray: ...  # noqa: D102
    def free(self, rows: IntArray, now_s: float) -> FloatArray: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class CandidateView:
    """Columns over the candidates of one request. Never written to by a policy.

    What few policies read is gathered when it is asked for: a view costs every pod, and the score network reads a third of it.
    """

    request: PlacementRequest
    rows: IntArray
    """Row of each candidate in the table of all known nodes."""
    table: NodeColumns
    numbers: FloatArray
    """float64[candidates, 6]: `CORES` and so on."""
    available_memory_bytes: FloatArray
    """Allocatable less requests of bound and reserved pods; may be negative after a race."""
    idle_instances: FloatArray
    """Idle instances of this function less placements newer than the report; NaN where no runtime reports."""
    init_time_s: float
    """NaN until this function's pods have been seen to start."""
    calls: Callable[[], OpenCalls]
    """All unfinished calls of the cluster, put together on demand: only policies that look at what is still to do ask for them."""
    lives: Lives
    """Asked by policies that care how long a node stays; nothing is kept of lifetimes before the first of them asks."""
    now_s: float
    """The latest time that the state has heard of."""
    believed: Callable[[], Believed]
    """Idle instances by the books, learned profiles and what is open, put together on demand."""
    unread: BoolArray | None = None
    """Candidates whose readings are too old for the policy; None: those of nobody."""

    @property
    def node_readings(self) -> FloatArray:
        """float32[candidates, 21]; NaN is missing or stale."""
        readings: FloatArray = self.table.readings.take(self.rows, axis=0)
        if self.unread is not None:
            readings[self.unread] = np.nan
        return readings

    @property
    def known_nodes(self) -> int:
        """How many nodes there are, candidates or not."""
        return len(self.table)

    @property
    def position(self) -> IntArray:
        """Rank of the node's name among all known nodes: what 'first' and 'next' mean."""
        return self.table.position[self.rows]

    @property
    def name_hash(self) -> HashArray:
        """Hash of each node's name, equal in every process."""
        return self.table.name_hash[self.rows]

    @property
    def cores(self) -> FloatArray:
        """Allocatable cores of each node."""
        return self.numbers[:, CORES]

    @property
    def memory_capacity_bytes(self) -> FloatArray:
        """Allocatable memory of each node, in bytes."""
        return self.numbers[:, MEMORY_CAPACITY]

    @property
    def inflight(self) -> FloatArray:
        """Unfinished function pods, bound or reserved."""
        return self.numbers[:, INFLIGHT]

    @property
    def inflight_memory_bytes(self) -> FloatArray:
        """Memory requests of those pods."""
        return self.numbers[:, INFLIGHT_MEMORY]

    @property
    def image_present(self) -> BoolArray:
        """Whether every image of the request is on the node."""
        return self.table.images_present(self.request.images, self.rows)
