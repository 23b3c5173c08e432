"""Nodes and pods as every controller sees them: a few facts of each, and what replicas share is kept once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from tiphys_models.base.facts import node_facts, pod_facts
from tiphys_models.base.quantity import timestamp_s
from tiphys_operator.cluster.scaled import request_m

_MIB = 2**20
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_MOST_CORES, _MOST_RAM_MIB = 4_096.0, 64.0 * 2**20
"""Twice the largest machines there are: planners step through the time that work takes, and absurd work would take them for ever."""
_MOST_LABELS = 32
"""Labels of a node selector that plans consider. Thousands are possible; the scheduler still checks those that are left out."""
_LONGEST_S, _CLOCKS_S = 366 * 86_400.0, 300.0


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node as a host."""

    name: str
    instance_type: str
    cores: float
    ram_mib: float
    labels: Mapping[str, str]
    usable: bool
    """Ready, not cordoned, without a taint that keeps pods out, and with something to give."""

    @property
    def allocatable_m(self) -> int:
        """Millicores that pods may ask for."""
        return round(self.cores * 1000)


@dataclass(frozen=True, slots=True)
class LivePod:
    """A pod as a task."""

    uid: str
    namespace: str
    function: str
    labels: Mapping[str, str]
    node: str
    """Empty while it waits."""
    scheduler_name: str
    cores: float
    ram_mib: float
    node_selector: tuple[tuple[str, str], ...]
    of_machine: bool
    """Whether a daemon set owns the pod: it is then part of the node, not of its load."""
    created_s: float
    scheduled_s: float | None
    finished_s: float | None
    """None while it runs or waits."""
    request_m: int = 0
    """CPU that counts on its node: the larger of what its containers ask for and what they have."""


def live_node(obj: Mapping[str, Any]) -> LiveNode:
    """A `LiveNode` made from a node as the API server sends it."""
    facts = node_facts(obj)
    spec = obj.get("spec") or {}
    tainted = any(taint.get("effect") in _KEEPS_OUT for taint in spec.get("taints") or ())
    empty = facts.cpu_milli <= 0 or facts.memory_bytes <= 0
    return LiveNode(
        name=facts.name,
        instance_type=facts.instance_type,
        cores=min(facts.cpu_milli / 1000, _MOST_CORES),
        ram_mib=min(facts.memory_bytes / _MIB, _MOST_RAM_MIB),
        labels=dict((obj.get("metadata") or {}).get("labels") or {}),
        usable=facts.schedulable and not tainted and not empty,
    )


def live_pod(obj: Mapping[str, Any], now_s: float) -> LivePod:
    """A `LivePod` made from a pod as the API server sends it; a pod that ended without saying when counts as ended now."""
    facts = pod_facts(obj)
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    created_s = _near(timestamp_s(metadata.get("creationTimestamp")) or now_s, now_s)
    ended = [timestamp_s(((c.get("state") or {}).get("terminated") or {}).get("finishedAt")) for c in status.get("containerStatuses") or ()]
    finished_s = _near(max((e for e in ended if e is not None), default=now_s), now_s) if facts.finished else None
    return LivePod(
        uid=facts.uid,
        namespace=intern(facts.namespace),
        function=intern(facts.function),
        labels=dict(metadata.get("labels") or {}),
        node=intern(facts.node),
        scheduler_name=intern(facts.scheduler_name),
        cores=min(facts.cpu_milli / 1000, _MOST_CORES),
        ram_mib=min(facts.memory_bytes / _MIB, _MOST_RAM_MIB),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items()))[:_MOST_LABELS],
        of_machine=facts.from_daemon_set,
        created_s=created_s,
        scheduled_s=_near(facts.scheduled_s, now_s) if facts.scheduled_s is not None else None,
        finished_s=finished_s,
        request_m=request_m(obj),
    )


def _near(at_s: float, now_s: float) -> float:
    """A time that a kubelet, or whoever may write a status, claims: at most a year ago, and no further ahead than clocks may differ."""
    return max(now_s - _LONGEST_S, min(at_s, now_s + _CLOCKS_S))
