"""The rules: baselines of the paper, and the one-line rule that serves until a trained model beats it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement import kernels, lifetimes
from tiphys_models.placement.candidates import CPU_REQUESTED_MILLI, MEMORY_REQUESTED, CandidateView, PlacementMemory
from tiphys_models.placement.schema import COLUMN

_LOAD = COLUMN["cpu_load_avg"]


@lru_cache(maxsize=64)
def probe_steps(nodes: int) -> tuple[int, ...]:
    """Numbers up to `nodes` that are co-prime to it and to each other: every one of them walks over all nodes."""
    steps: list[int] = []
    for candidate in range(1, nodes + 1):
        if gcd(candidate, nodes) == 1 and all(gcd(candidate, s) == 1 for s in steps):
            steps.append(candidate)
    return tuple(steps)


def home_of(nodes: int, function_hash: int) -> tuple[int, int]:
    """Where OpenWhisk's walk home, home + step, home + 2 step, ... begins, and the inverse of its step modulo `nodes`."""
    steps = probe_steps(nodes)
    return function_hash % nodes, pow(steps[function_hash % len(steps)], -1, nodes)


def probe_of(position: IntArray, nodes: int, function_hash: int) -> IntArray:
    """Number of the probe, in OpenWhisk's walk from `home_of`, at which each position is reached."""
    home, inverse = home_of(nodes, function_hash)
    return np.asarray((position - home) * inverse % nodes)


@dataclass(frozen=True, slots=True)
class Hashing:
    """OpenWhisk's: a home per function, then co-prime probing to the first node with room; none with room: any, at random."""

    name: str = "hashing"
    epsilon: float = 0.5
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the probe that reaches the node; full nodes share the last place."""
        request = view.request
        home, inverse = home_of(view.known_nodes, stable_hash(request.namespace) ^ stable_hash(request.function))
        return kernels.hashing(view.position, view.known_nodes, home, inverse, view.available_memory_bytes, request.memory_bytes)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """The next node by name after the node of the newest placement: a position that every replica can read off the cluster."""

    name: str = "round-robin"
    epsilon: float = 0.5
    row_wise: bool = False
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the distance from the next position."""
        return kernels.round_robin(view.position, memory.newest_position, view.known_nodes)


@dataclass(frozen=True, slots=True)
class LeastConnections:
    """Fewest unfinished function pods."""

    name: str = "least-connections"
    epsilon: float = 0.5
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the pods in flight."""
        return kernels.least_connections(view.inflight)


@dataclass(frozen=True, slots=True)
class Greedy:
    """First fit: the first node by name with room for the request; none with room: the least loaded."""

    name: str = "greedy"
    epsilon: float = 0.5
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the position; nodes without room come after all others, by pods in flight."""
        return kernels.greedy(view.position, view.known_nodes, view.inflight, view.available_memory_bytes, view.request.memory_bytes)


@dataclass(frozen=True, slots=True)
class StaticRank:
    """The paper's weighted sum: 2 cpu + 1.5 memory + disk + network + load + warm + 3 memory slots, each scaled over candidates."""

    name: str = "static-rank"
    epsilon: float = 1e-3
    row_wise: bool = False
    digest: str = ""
    weights: tuple[float, ...] = (2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 3.0)

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """The weighted sum; a term nobody measured on a node counts as half."""
        if not len(view.rows):
            return np.zeros(0)  # terms are scaled over candidates: there is no scale without any
        return kernels.static_rank(
            np.array(self.weights),
            view.node_readings,
            view.cores,
            view.idle_instances,
            view.available_memory_bytes,
            view.request.memory_bytes,
        )


@dataclass(frozen=True, slots=True)
class WarmFirst:
    """A node with an idle instance of the function, else one with its image, then the fewest in flight per core.

    Per core and with this pod counted, because nodes are rarely alike: five pods are many on two cores and few on sixteen,
    and of two empty nodes the larger one has more to give.
    """

    name: str = "warm-first"
    epsilon: float = 1e-3
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """A step of 1,000 for each degree of warmth, less the pods in flight per core, this one included."""
        return kernels.warm_first(view.idle_instances, view.image_present, view.inflight, view.cores)


@dataclass(frozen=True, slots=True)
class MostAllocated:
    """The fullest node, as in kube-scheduler's MostAllocated: for pods that stay, where nodes that are empty can go.

    Without readings, and not for calls: those are done sooner where fewer are in flight.
    """

    name: str = "most-allocated"
    epsilon: float = 1e-6
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Share of CPU and memory requested once this pod is there, with equal weights."""
        cpu_milli, memory_bytes = view.numbers[:, CPU_REQUESTED_MILLI], view.numbers[:, MEMORY_REQUESTED]
        request = view.request
        return kernels.most_allocated(
            cpu_milli, view.cores * 1000.0, request.cpu_milli, memory_bytes, view.memory_capacity_bytes, request.memory_bytes
        )


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The fullest node that the pod does not prolong the life of: for pods that stay, where nodes that are empty go.

    Lifetimes are learned by application while pods come and go. Nodes whose load would exceed their cores are spared.
    """

    name: str = "lifetimes"
    epsilon: float = 1e-6
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Share of the node that is requested, less what the pod prolongs, leaves behind and crowds."""
        allocation = MostAllocated().score(view, memory)
        now_s = view.now_s if view.now_s > -math.inf else 0.0
        gone = view.lives.gone(view.request.function, now_s)
        empty = view.lives.empty(view.rows, now_s)
        crowd = lifetimes.crowding(view.node_readings[:, _LOAD], view.cores, view.request.cpu_milli / 1000)
        return lifetimes.score(allocation, lifetimes.prolonged(empty, gone), lifetimes.left_behind(empty, gone), crowd)


@dataclass(frozen=True, slots=True)
class ConsolidationAware:
    """The fullest node in use that the pod does not keep from being emptied: for clusters whose autoscaler moves pods to close nodes.

    A node stays for pods that the autoscaler must not evict (`karpenter.sh/do-not-disrupt`, `safe-to-evict: "false"`), and for no others:
    one of those goes where others stay about as long, by lifetimes learned by application; whatever may be moved goes where it is fullest.
    """

    name: str = "consolidation-aware"
    epsilon: float = 1e-6
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Share of the node that is requested and whether it is in use, less what a protected pod prolongs and leaves behind."""
        allocation = MostAllocated().score(view, memory)
        now_s = view.now_s if view.now_s > -math.inf else 0.0
        gone = view.lives.gone(view.request.function, now_s)
        free = view.lives.free(view.rows, now_s)
        late, early = lifetimes.prolonged(free, gone), lifetimes.left_behind(free, gone)
        return lifetimes.consolidated_score(allocation, late, early, view.inflight, view.request.protected)
