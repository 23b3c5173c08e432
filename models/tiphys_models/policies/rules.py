"""The rules: baselines of the paper, and the one-line rule that serves until a trained model beats it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from tiphys_models.domain.hashing import stable_hash
from tiphys_models.features.arrays import FloatArray, IntArray
from tiphys_models.features.readings import CandidateView, PlacementMemory
from tiphys_models.features.schema import COLUMN


@lru_cache(maxsize=64)
def probe_steps(nodes: int) -> tuple[int, ...]:
    """Numbers up to `nodes` that are co-prime to it and to each other: every one of them walks over all nodes."""
    steps: list[int] = []
    for candidate in range(1, nodes + 1):
        if gcd(candidate, nodes) == 1 and all(gcd(candidate, s) == 1 for s in steps):
            steps.append(candidate)
    return tuple(steps)


def probe_of(position: IntArray, nodes: int, function_hash: int) -> IntArray:
    """At which probe OpenWhisk's walk home, home + step, home + 2 step, ... reaches each position."""
    steps = probe_steps(nodes)
    home, step = function_hash % nodes, steps[function_hash % len(steps)]
    return np.asarray((position - home) * pow(step, -1, nodes) % nodes)


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
        probe = probe_of(view.position, view.known_nodes, stable_hash(request.namespace) ^ stable_hash(request.function))
        room = view.available_memory_bytes >= request.memory_bytes
        return -np.where(room, probe, view.known_nodes + 1.0)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """The next node by name after the node of the newest placement: a position that every replica can read off the cluster."""

    name: str = "round-robin"
    epsilon: float = 0.5
    row_wise: bool = False
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the distance from the next position."""
        return -((view.position - memory.newest_position - 1) % view.known_nodes).astype(np.float64)


@dataclass(frozen=True, slots=True)
class LeastConnections:
    """Fewest unfinished function pods."""

    name: str = "least-connections"
    epsilon: float = 0.5
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the pods in flight."""
        return -view.inflight


@dataclass(frozen=True, slots=True)
class Greedy:
    """First fit: the first node by name with room for the request; none with room: the least loaded."""

    name: str = "greedy"
    epsilon: float = 0.5
    row_wise: bool = True
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the position; nodes without room come after all others, by pods in flight."""
        room = view.available_memory_bytes >= view.request.memory_bytes
        return -np.where(room, view.position, view.known_nodes + view.inflight)


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
        readings = view.node_readings
        busy_and_idle = readings[:, : COLUMN["ctx_switches"]]
        terms = (
            readings[:, COLUMN["cpu_idle"]] / np.maximum(busy_and_idle.sum(axis=1), 1e-9),
            readings[:, COLUMN["memory_free"]],
            -(readings[:, COLUMN["disk_read"]] + readings[:, COLUMN["disk_write"]]),
            -(readings[:, COLUMN["net_recv"]] + readings[:, COLUMN["net_sent"]]),
            -readings[:, COLUMN["cpu_load_avg"]] / np.maximum(view.cores, 1e-3),
            view.idle_instances,
            np.floor(view.available_memory_bytes / max(view.request.memory_bytes, 1)),
        )
        total = np.zeros(len(view.rows))
        for weight, term in zip(self.weights, terms, strict=True):
            total += weight * _scaled(np.asarray(term, np.float64))
        return total


def _scaled(term: FloatArray) -> FloatArray:
    """To [0, 1] over the candidates; equal everywhere or missing is one half."""
    known = term[~np.isnan(term)]
    if not len(known) or known.max() - known.min() <= 0:
        return np.full(len(term), 0.5)
    return np.asarray(np.nan_to_num((term - known.min()) / (known.max() - known.min()), nan=0.5))


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
        warm = np.nan_to_num(view.idle_instances) >= 1
        tier = np.where(warm, 2.0, np.where(view.image_present, 1.0, 0.0))
        return np.asarray(tier * 1000 - np.minimum((view.inflight + 1) / np.maximum(view.cores, 1e-3), 999))
