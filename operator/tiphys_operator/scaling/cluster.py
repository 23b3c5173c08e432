"""Pods, nodes and ScalingPolicies as the watches show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.workload import NodeRoom, ScaledPod, Target, node_of, pod_of


class ScalingCluster:
    """What the watches have shown; sinks write, the loop reads."""

    def __init__(self) -> None:
        self.policies: dict[str, ScalingSeen] = {}
        self.nodes: dict[str, NodeRoom] = {}
        self.used_m: dict[str, int] = {}
        """CPU that unfinished pods ask for, by node; only nodes of which some is asked for."""
        self._pods: dict[str, ScaledPod] = {}
        self._by_namespace: dict[str, dict[str, ScaledPod]] = {}
        self._uids: dict[str, set[str]] = {}

    def pods_kept(self) -> int:
        """Pods in memory."""
        return len(self._pods)

    def owned(self, target: Target) -> tuple[ScaledPod, ...]:
        """Unfinished pods of a workload that are not being deleted, oldest first."""
        found = [p for p in self._by_namespace.get(target.namespace, {}).values() if not p.deleting and target.owns(p)]
        return tuple(sorted(found, key=lambda p: (p.started_s or float("inf"), p.name)))

    def put_pod(self, pod: ScaledPod | None, uid: str) -> None:
        """Added, changed, or gone (None)."""
        former = self._pods.pop(uid, None)
        if former is not None:
            self._use(former.node, -former.request_m)
            there = self._by_namespace[former.namespace]
            del there[uid]
            if not there:
                del self._by_namespace[former.namespace]
        if pod is not None:
            self._pods[uid] = pod
            self._use(pod.node, pod.request_m)
            self._by_namespace.setdefault(pod.namespace, {})[uid] = pod

    def _use(self, node: str, request_m: int) -> None:
        if used_m := self.used_m.pop(node, 0) + request_m:
            self.used_m[node] = used_m

    def pod_uids(self) -> set[str]:
        """Of all that are known."""
        return set(self._pods)

    def uids_in(self, namespace: str) -> set[str]:
        """Policies of a namespace."""
        return self._uids.get(namespace, set())

    def drop_policy(self, uid: str) -> None:
        """It is gone."""
        if (former := self.policies.pop(uid, None)) is not None:
            left = self._uids[former.namespace]
            left.discard(uid)
            if not left:
                del self._uids[former.namespace]

    def put_policy(self, obj: dict[str, Any]) -> bool:
        """Take an object unless a newer one is known; whether what the user wants of it changed."""
        seen = scaling_seen(obj)
        former = self.policies.get(seen.uid)
        if former is not None and _number(former.version) > _number(seen.version):
            return False
        self.policies[seen.uid] = seen
        self._uids.setdefault(seen.namespace, set()).add(seen.uid)
        return former is None or (former.generation, former.paused, former.deleting) != (seen.generation, seen.paused, seen.deleting)


class PodSink:
    """Pods into the cluster; of one that cannot be read, what was read before stays."""

    def __init__(self, cluster: ScalingCluster, on_change: Callable[[str], None]) -> None:
        self._cluster, self._on_change = cluster, on_change

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        self._cluster.put_pod(pod_of(obj), obj["metadata"]["uid"])
        self._on_change(obj["metadata"]["namespace"])

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._cluster.put_pod(None, obj["metadata"]["uid"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in self._cluster.pod_uids() - uids:
            self._cluster.put_pod(None, uid)


class NodeSink:
    """Nodes into the cluster."""

    def __init__(self, cluster: ScalingCluster) -> None:
        self._cluster, self._names = cluster, dict[str, str]()

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        node = node_of(obj)
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


class PolicySink:
    """ScalingPolicies into the cluster."""

    def __init__(self, cluster: ScalingCluster, on_change: Callable[[str], None]) -> None:
        self._cluster, self._on_change = cluster, on_change

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed; our own statuses come back here too and are no news."""
        if self._cluster.put_policy(obj):
            self._on_change(obj["metadata"]["uid"])

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._cluster.drop_policy(obj["metadata"]["uid"])
        self._on_change(obj["metadata"]["uid"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in set(self._cluster.policies) - uids:
            self._cluster.drop_policy(uid)
            self._on_change(uid)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
