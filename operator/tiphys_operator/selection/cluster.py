"""Nodes and pods as the interval loop sees them: a few facts of each, kept by watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.domain.clock import Clock
from tiphys_models.domain.facts import node_facts, pod_facts
from tiphys_models.domain.quantity import timestamp_s

_MIB = 2**20
_KEEPS_OUT = ("NoSchedule", "NoExecute")
_MOST_CORES, _MOST_RAM_MIB = 4_096.0, 64.0 * 2**20
"""Twice the largest machines there are: planners step through the time that work takes, and absurd work would take them for ever."""
_MOST_LABELS = 32
"""Of a node selector. Thousands are possible; what is left out the scheduler still looks at."""
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
    """Of a daemon set: part of the node, not of its load."""
    created_s: float
    scheduled_s: float | None
    finished_s: float | None
    """None while it runs or waits."""


class Cluster:
    """What the two watches have shown."""

    def __init__(self) -> None:
        self.nodes: dict[str, LiveNode] = {}
        self.pods: dict[str, LivePod] = {}


def live_node(obj: Mapping[str, Any]) -> LiveNode:
    """From a node as the API server sends it."""
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
    """From a pod as the API server sends it; a pod that ended without saying when ended now."""
    facts = pod_facts(obj)
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    created_s = _near(timestamp_s(metadata.get("creationTimestamp")) or now_s, now_s)
    ended = [timestamp_s(((c.get("state") or {}).get("terminated") or {}).get("finishedAt")) for c in status.get("containerStatuses") or ()]
    finished_s = _near(max((e for e in ended if e is not None), default=now_s), now_s) if facts.finished else None
    return LivePod(
        uid=facts.uid,
        namespace=facts.namespace,
        function=facts.function,
        labels=dict(metadata.get("labels") or {}),
        node=facts.node,
        scheduler_name=facts.scheduler_name,
        cores=min(facts.cpu_milli / 1000, _MOST_CORES),
        ram_mib=min(facts.memory_bytes / _MIB, _MOST_RAM_MIB),
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items()))[:_MOST_LABELS],
        of_machine=facts.from_daemon_set,
        created_s=created_s,
        scheduled_s=_near(facts.scheduled_s, now_s) if facts.scheduled_s is not None else None,
        finished_s=finished_s,
    )


def _near(at_s: float, now_s: float) -> float:
    """A kubelet's time, or that of whoever may write a status: at most a year ago, and no further ahead than clocks may differ."""
    return max(now_s - _LONGEST_S, min(at_s, now_s + _CLOCKS_S))


class NodeSink:
    """Nodes into the cluster; of one that cannot be read, what was read before stays."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._names = cluster, dict[str, str]()

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        node = live_node(obj)
        self._names[obj["metadata"]["uid"]] = node.name
        self._cluster.nodes[node.name] = node

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._names.pop(obj["metadata"]["uid"], None)
        self._cluster.nodes.pop(obj["metadata"]["name"], None)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in [uid for uid in self._names if uid not in uids]:
            self._cluster.nodes.pop(self._names.pop(uid), None)


class PodSink:
    """Pods into the cluster; of one that cannot be read, what was read before stays."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed; the first time at which it was seen finished stays."""
        pod = live_pod(obj, self._clock.now_s())
        known = self._cluster.pods.get(pod.uid)
        if known is None or known.finished_s is None:
            self._cluster.pods[pod.uid] = pod

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._cluster.pods.pop(obj["metadata"]["uid"], None)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in [uid for uid in self._cluster.pods if uid not in uids]:
            del self._cluster.pods[uid]
