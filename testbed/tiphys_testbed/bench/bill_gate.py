"""Room on the nodes of a billed run, and who waits for it behind the scheduling gate: what `…+waits` adds to a lane.

An autoscaler opens a node for every pod that fits nowhere now. A pod whose owner lets it wait is kept from its sight until a node has
room, or the bound is over: ends of other pods make room sooner than a node is born more often than not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiphys_models.base.quantity import cpu_milli, memory_bytes
from tiphys_models.placement.gate import GATE

GATES = [{"name": GATE}]


@dataclass(slots=True)
class _Node:
    cpu_milli: int
    memory_bytes: int
    open: bool


@dataclass(slots=True)
class _Taken:
    node: str
    cpu_milli: int
    memory_bytes: int


@dataclass(slots=True)
class Room:
    """What is free on which node, with pods that were let go counted where they fit best until they are bound."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _taken: dict[str, _Taken] = field(default_factory=dict)

    def see_node(self, kind: str, node: Mapping[str, Any]) -> None:
        """An event of a node; one with a taint that repels, or not ready, has no room."""
        name = node["metadata"]["name"]
        with self.lock:
            if kind == "DELETED":
                self._nodes.pop(name, None)
                return
            spec, status = node.get("spec") or {}, node.get("status") or {}
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
            repelled = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
            there = status.get("allocatable") or {}
            may = ready and not repelled and not spec.get("unschedulable", False)
            self._nodes[name] = _Node(cpu_milli(there.get("cpu", 0)), memory_bytes(there.get("memory", 0)), may)

    def see_pod(self, kind: str, pod: Mapping[str, Any]) -> None:
        """An event of a pod: one that is bound and unfinished takes room on its node."""
        name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName")
        with self.lock:
            if kind == "DELETED" or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                self._taken.pop(name, None)
            elif node:
                self._taken[name] = _Taken(node, *_wanted(pod))

    def take(self, pod: Mapping[str, Any]) -> bool:
        """Whether the pod fits somewhere now; then its room is taken, on the node that it leaves least on."""
        milli, size = _wanted(pod)
        with self.lock:
            free = {name: [node.cpu_milli, node.memory_bytes] for name, node in self._nodes.items() if node.open}
            for taken in self._taken.values():
                if (left := free.get(taken.node)) is not None:
                    left[0] -= taken.cpu_milli
                    left[1] -= taken.memory_bytes
            fitting = [(left[0], name) for name, left in free.items() if left[0] >= milli and left[1] >= size]
            if fitting:
                self._taken[pod["metadata"]["name"]] = _Taken(min(fitting)[1], milli, size)
            return bool(fitting)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod behind its gate."""

    pod: Mapping[str, Any]
    until_s: float


def let_go(waiting: Iterable[Waiting], room: Room, now_s: float) -> list[Waiting]:
    """Those who go now, first come first: their time is over, or there is room. A pod that does not fit keeps no smaller one waiting."""
    return [one for one in waiting if now_s >= one.until_s or room.take(one.pod)]


def _wanted(pod: Mapping[str, Any]) -> tuple[int, int]:
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return cpu_milli(requests["cpu"]), memory_bytes(requests["memory"])
