"""What a policy is shown: the candidates of one request, gathered out of all known nodes.

A policy reads columns, never objects; row i of every column belongs to `rows[i]`. The same view is built by the extender from
watches and Prometheus, by a snapshot file and by a simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiphys_models.features.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.features.calls import OpenCalls


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pod, or one call, that wants a node."""

    uid: str
    namespace: str
    function: str
    cpu_milli: int
    memory_bytes: int
    images: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementMemory:
    """What policies remember, derived from published placements only, so that two replicas agree."""

    newest_position: int
    """Position (in `CandidateView.position`'s order) of the node of the newest placement of a function pod; -1 before the first."""


@dataclass(frozen=True, slots=True)
class CandidateView:
    """Columns over the candidates of one request. Never written to by a policy."""

    request: PlacementRequest
    rows: IntArray
    """Row of each candidate in the table of all known nodes."""
    version: IntArray
    """Changes whenever anything a row-wise score reads has changed for that node."""
    position: IntArray
    """Rank of the node's name among all known nodes: what 'first' and 'next' mean."""
    known_nodes: int
    name_hash: HashArray
    node_readings: FloatArray
    """float32[candidates, 21]; NaN is missing or stale."""
    cores: FloatArray
    memory_capacity_bytes: FloatArray
    available_memory_bytes: FloatArray
    """Allocatable less requests of bound and reserved pods; may be negative after a race."""
    available_cpu_milli: FloatArray
    inflight: FloatArray
    """Unfinished function pods, bound or reserved."""
    inflight_memory_bytes: FloatArray
    """Memory requests of those pods."""
    idle_instances: FloatArray
    """Idle instances of this function less placements newer than the report; NaN where no runtime reports."""
    image_present: BoolArray
    """Whether every image of the request is on the node."""
    init_time_s: float
    """NaN until this function's pods have been seen to start."""
    calls: Callable[[], OpenCalls]
    """All unfinished calls of the cluster, put together on demand: only policies that look at what is still to do ask for them."""
