"""Pods, nodes and ScalingPolicies as the watches show them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.workload import NodeRoom, ScaledPod, Target, node_of, pod_of


@dataclass(frozen=True, slots=True)
class _Load:
    """All that is kept of a pod in whose namespace nothing is scaled."""

    namespace: str
    node: str
    request_m: int


class ScalingCluster:
    """What the watches have shown; sinks write, the loop reads. Pods are kept whole only in namespaces with policies."""

    def __init__(self) -> None:
        self.policies: dict[str, ScalingSeen] = {}
        self.nodes: dict[str, NodeRoom] = {}
        self.used_m: dict[str, int] = {}
        """CPU that unfinished pods ask for, by node; only nodes of which some is asked for."""
        self._pods: dict[str, ScaledPod] = {}
        self._by_namespace: dict[str, dict[str, ScaledPod]] = {}
        self._uids: dict[str, set[str]] = {}
        self._loads: dict[str, _Load] = {}
        self._whole: set[str] = set()
        """Namespaces whose pods are kept whole from now on."""
        self._unread: set[str] = set()
        """Those of them whose pods were seen before that, and must be read once."""

    def pods_kept(self) -> int:
        """Pods that are kept whole."""
        return len(self._pods)

    def unread(self) -> frozenset[str]:
        """Namespaces of policies whose pods are not known yet: nothing may be decided there."""
        return frozenset(self._unread)

    def keeps_whole(self, namespace: str) -> bool:
        """Whether pods of this namespace may be scaled."""
        return namespace in self._whole

    def put_load(self, uid: str, namespace: str, node: str, request_m: int) -> None:
        """Take what a pod asks for on its node, and nothing else of it."""
        self.put_pod(None, uid)
        # a hundred thousand pods share a few thousand names
        self._loads[uid] = _Load(sys.intern(namespace), sys.intern(node), request_m)
        self._use(node, request_m)

    def is_load(self, uid: str) -> bool:
        """Whether only that is known of it."""
        return uid in self._loads

    def have_read(self, namespace: str) -> None:
        """All pods of the namespace were read."""
        self._unread.discard(namespace)

    def owned(self, target: Target) -> tuple[ScaledPod, ...]:
        """Unfinished pods of a workload that are not being deleted, oldest first."""
        found = [p for p in self._by_namespace.get(target.namespace, {}).values() if not p.deleting and target.owns(p)]
        return tuple(sorted(found, key=lambda p: (p.started_s or float("inf"), p.name)))

    def put_pod(self, pod: ScaledPod | None, uid: str) -> None:
        """Added, changed, or gone (None)."""
        if (load := self._loads.pop(uid, None)) is not None:
            self._use(load.node, -load.request_m)
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
        return set(self._pods) | set(self._loads)

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
                self._whole.discard(former.namespace)
                self._unread.discard(former.namespace)
                for pod_uid, pod in list(self._by_namespace.get(former.namespace, {}).items()):
                    self.put_load(pod_uid, pod.namespace, pod.node, pod.request_m)

    def put_policy(self, obj: dict[str, Any]) -> bool:
        """Take an object unless a newer one is known; whether what the user wants of it changed."""
        seen = scaling_seen(obj)
        former = self.policies.get(seen.uid)
        if former is not None and _number(former.version) > _number(seen.version):
            return False
        self.policies[seen.uid] = seen
        self._uids.setdefault(seen.namespace, set()).add(seen.uid)
        if seen.namespace not in self._whole:
            self._whole.add(seen.namespace)
            if any(load.namespace == seen.namespace for load in self._loads.values()):
                self._unread.add(seen.namespace)
        return former is None or (former.generation, former.paused, former.deleting) != (seen.generation, seen.paused, seen.deleting)


class PodSink:
    """Pods into the cluster; of one that cannot be read, what was read before stays."""

    def __init__(self, cluster: ScalingCluster, on_change: Callable[[str], None]) -> None:
        self._cluster, self._on_change = cluster, on_change

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        pod, uid = pod_of(obj), obj["metadata"]["uid"]
        if pod is None or self._cluster.keeps_whole(pod.namespace):
            self._cluster.put_pod(pod, uid)
        else:
            self._cluster.put_load(uid, pod.namespace, pod.node, pod.request_m)
        self._on_change(obj["metadata"]["namespace"])

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted."""
        self._cluster.put_pod(None, obj["metadata"]["uid"])

    def read(self, obj: dict[str, Any]) -> None:
        """A pod of a namespace that is read once: what the watch has shown since is newer, and what it has dropped is gone."""
        if self._cluster.is_load(obj["metadata"]["uid"]):
            self.put(obj)

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

    def __init__(self, cluster: ScalingCluster, on_change: Callable[[str], None], on_listed: Callable[[], None] = lambda: None) -> None:
        self._cluster, self._on_change, self._on_listed = cluster, on_change, on_listed

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
        self._on_listed()


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0
