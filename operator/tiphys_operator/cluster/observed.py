"""Nodes and pods as their watches show them. Sinks write, controllers read; pods are watched once, and kept as little as possible.

Of every unfinished pod a few facts are kept, and sums of what is alike; whole are only those that a ScalingPolicy's target owns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from sys import intern
from typing import Any, Protocol

from tiphys_models.base.clock import Clock, SystemClock
from tiphys_operator.cluster.instances import Instance, instance_of
from tiphys_operator.cluster.live import LiveNode, LivePod, live_node, live_pod
from tiphys_operator.cluster.scaled import ScaledPod, pod_of

FINISHED_FOR_S = 3600.0
"""Seconds for which pods that have ended are kept for selection's accounts: ten intervals of six minutes."""
FINISHED_MAX = 20_000
_A_SLICE = 200
_HASH_LABEL = "pod-template-hash"
Owner = tuple[str, str, str]
"""Namespace, kind and name of a workload that owns pods."""


@dataclass(slots=True)
class Group:
    """Unfinished pods of one namespace with equal labels and the same scheduler."""

    labels: Mapping[str, str]
    scheduler_name: str
    count: int = 0


class PodFollower(Protocol):
    """What is shown every pod that the cluster has taken, beside it: pods are watched once."""

    def put(self, obj: Mapping[str, Any], live: LivePod) -> None:
        """The pod was added or changed, or has ended."""
        ...

    def drop(self, uid: str, *, ended: bool) -> None:
        """The pod is gone; `ended`: it was seen to go just now, and nobody had asked it to."""
        ...


_Labels = tuple[tuple[str, str], ...]


class ObservedCluster:
    """Nodes, pods, and sums of them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.nodes: dict[str, LiveNode] = {}
        self.pods: dict[str, LivePod] = {}
        """Unfinished ones; while `keeps_finished`, also those that have ended of late."""
        self.used_m: dict[str, int] = {}
        """CPU that unfinished pods ask for, by node; only nodes of which some is asked for."""
        self.keeps_finished = False
        self.keeps_instances = False
        self.instances: dict[str, Instance] = {}
        """Pods that are instances of a function platform, by uid, while `keeps_instances`."""
        self.on_pod: list[Callable[[Owner], None]] = []
        """Told whose pod was added or changed, of pods that are kept whole."""
        self.followers: list[PodFollower] = []
        self._whole: dict[Owner, dict[str, ScaledPod]] = {}
        self._owner_of: dict[str, Owner] = {}
        """Owners of pods that are kept whole, by the pod's uid."""
        self._targets: dict[Owner, int] = {}
        """Workloads whose pods are kept whole, and for how many policies."""
        self._unread: set[Owner] = set()
        self._groups: dict[str, dict[tuple[_Labels, str], Group]] = {}
        self._finished: deque[tuple[float, str]] = deque()
        self._node_names: dict[str, str] = {}
        self._node_uids: dict[str, str] = {}

    # What is read

    def pods_kept(self) -> int:
        """Pods that are kept whole."""
        return len(self._owner_of)

    def owned(self, namespace: str, kind: str, name: str) -> tuple[ScaledPod, ...]:
        """Unfinished pods of a workload, as far as their owner's name tells."""
        return tuple(self._whole.get((namespace, kind, name), {}).values())

    def groups(self, namespace: str) -> tuple[Group, ...]:
        """Unfinished pods of a namespace by their labels."""
        return tuple(self._groups.get(namespace, {}).values())

    def unread(self) -> frozenset[str]:
        """Namespaces in which pods were seen before anybody wanted them whole: they must be read once."""
        return frozenset(namespace for namespace, _, _ in self._unread)

    # What is wanted

    def want(self, namespace: str, kind: str, name: str) -> None:
        """Keep the pods of this workload whole, for one policy."""
        owner = (namespace, kind, name)
        self._targets[owner] = self._targets.get(owner, 0) + 1
        if self._targets[owner] == 1 and self._groups.get(namespace):
            self._unread.add(owner)

    def unwant(self, namespace: str, kind: str, name: str) -> None:
        """One policy less scales this workload; pods that no policy wants whole any more are reduced to a few facts like all others."""
        owner = (namespace, kind, name)
        left = self._targets.get(owner, 0) - 1
        if left > 0:
            self._targets[owner] = left
            return
        self._targets.pop(owner, None)
        self._unread.discard(owner)
        for uid in self._whole.pop(owner, {}):
            del self._owner_of[uid]

    def have_read(self, namespace: str) -> None:
        """The caller has read all pods of the namespace, so that none of its workloads waits to be read."""
        self._unread = {owner for owner in self._unread if owner[0] != namespace}

    def read(self, obj: dict[str, Any]) -> None:
        """A pod of a namespace that is read once: what the watch has shown since is newer, and what it has dropped is gone."""
        uid = obj["metadata"]["uid"]
        known = self.pods.get(uid)
        if known is not None and known.finished_s is None and uid not in self._owner_of:
            self._keep_whole(obj, known)

    def wants(self, namespace: str, kind: str, name: str) -> bool:
        """Whether the pods of this workload are kept whole."""
        return (namespace, kind, name) in self._targets

    # What the watches write

    def put_pod(self, obj: dict[str, Any]) -> None:
        """Added or changed. Of one that cannot be read, what was read before stays; the first time at which it was seen finished, too."""
        uid = obj["metadata"]["uid"]
        known = self.pods.get(uid)
        if known is not None and known.finished_s is not None:
            return
        pod = live_pod(obj, self._clock.now_s())
        instance = instance_of(obj) if self.keeps_instances else None
        self._forget(uid)
        if pod.finished_s is None:
            self._add(pod)
            self._keep_whole(obj, self.pods[uid])
            if instance is not None:
                self.instances[uid] = instance
        elif self.keeps_finished and pod.finished_s > self._clock.now_s() - FINISHED_FOR_S:
            self.pods[uid] = pod
            self._finished.append((self._clock.monotonic_s(), uid))
            self._let_go_of_finished()
        for follower in self.followers:
            follower.put(obj, pod)

    def drop_pod(self, uid: str, *, ended: bool = False) -> None:
        """The pod was deleted, or has ended where only unfinished ones are watched: everything kept of it is removed."""
        self._forget(uid)
        for follower in self.followers:
            follower.drop(uid, ended=ended)

    def pod_uids(self) -> set[str]:
        """Uids of all known pods."""
        return set(self.pods)

    def put_node(self, obj: dict[str, Any]) -> None:
        """The node was added or changed: its facts replace the former ones."""
        node = live_node(obj)
        uid = obj["metadata"]["uid"]
        self._node_names[uid], self._node_uids[node.name] = node.name, uid
        self.nodes[node.name] = node

    def drop_node(self, uid: str) -> None:
        """The node was deleted: its facts are removed."""
        if (name := self._node_names.pop(uid, None)) is not None and self._node_uids.get(name) == uid:  # else it was made again since
            del self.nodes[name], self._node_uids[name]

    def node_uids(self) -> set[str]:
        """Uids of all known nodes."""
        return set(self._node_names)

    def _add(self, pod: LivePod) -> None:
        key = (tuple(sorted(pod.labels.items())), pod.scheduler_name)
        groups = self._groups.setdefault(pod.namespace, {})
        if (group := groups.get(key)) is None:
            labels = {intern(name): intern(value) for name, value in key[0]}
            group = groups[key] = Group(labels, pod.scheduler_name)
        group.count += 1
        # replicas have the same labels: a hundred thousand pods share a few thousand of these
        self.pods[pod.uid] = replace(pod, labels=group.labels)
        self._use(pod.node, pod.request_m)

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self.instances.pop(uid, None)
        if (owner := self._owner_of.pop(uid, None)) is not None:
            of = self._whole[owner]
            del of[uid]
            if not of:
                del self._whole[owner]
        if pod is None or pod.finished_s is not None:
            return
        self._use(pod.node, -pod.request_m)
        groups, key = self._groups[pod.namespace], (tuple(sorted(pod.labels.items())), pod.scheduler_name)
        groups[key].count -= 1
        if not groups[key].count:
            del groups[key]
            if not groups:
                del self._groups[pod.namespace]

    def _keep_whole(self, obj: dict[str, Any], pod: LivePod) -> None:
        owner = _owner(obj)
        if owner is None or owner not in self._targets:
            return
        whole = pod_of(obj, pod.labels)
        if whole is None:
            return
        self._whole.setdefault(owner, {})[pod.uid] = whole
        self._owner_of[pod.uid] = owner
        for tell in self.on_pod:
            tell(owner)

    def _use(self, node: str, request_m: int) -> None:
        if used_m := self.used_m.pop(node, 0) + request_m:
            self.used_m[node] = used_m

    def _let_go_of_finished(self) -> None:
        oldest_s = self._clock.monotonic_s() - FINISHED_FOR_S
        while self._finished and (self._finished[0][0] < oldest_s or len(self._finished) > FINISHED_MAX):
            uid = self._finished.popleft()[1]
            if (pod := self.pods.get(uid)) is not None and pod.finished_s is not None:
                del self.pods[uid]


class PodSink:
    """Pods into the cluster."""

    def __init__(self, cluster: ObservedCluster) -> None:
        self._cluster = cluster

    def put(self, obj: dict[str, Any]) -> None:
        """The watch shows a new or changed pod, which goes to the observed cluster."""
        self._cluster.put_pod(obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that a pod was deleted, or is unfinished no longer, which goes to the observed cluster."""
        metadata = obj["metadata"]
        self._cluster.drop_pod(metadata["uid"], ended=not metadata.get("deletionTimestamp"))

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for _ in self.sweep(uids):
            pass

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """The same slice by slice."""
        for number, uid in enumerate(self._cluster.pod_uids() - uids, 1):
            self._cluster.drop_pod(uid)
            if number % _A_SLICE == 0:
                yield


class NodeSink:
    """Nodes into the cluster."""

    def __init__(self, cluster: ObservedCluster) -> None:
        self._cluster = cluster

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed; of one that cannot be read, what was read before stays."""
        self._cluster.put_node(obj)

    def drop(self, obj: dict[str, Any]) -> None:
        """The watch shows that a node was deleted, which goes to the observed cluster."""
        self._cluster.drop_node(obj["metadata"]["uid"])

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for uid in self._cluster.node_uids() - uids:
            self._cluster.drop_node(uid)


def _owner(obj: Mapping[str, Any]) -> Owner | None:
    """The workload that owns a pod: a StatefulSet, or the Deployment that a ReplicaSet's name tells."""
    metadata = obj["metadata"]
    for reference in metadata.get("ownerReferences") or ():
        if not reference.get("controller"):
            continue
        kind, name = str(reference.get("kind", "")), str(reference.get("name", ""))
        if kind == "StatefulSet":
            return str(metadata["namespace"]), kind, name
        end = f"-{(metadata.get('labels') or {}).get(_HASH_LABEL, '')}"
        if kind == "ReplicaSet" and name.endswith(end) and len(end) > 1:
            return str(metadata["namespace"]), "Deployment", name.removesuffix(end)
    return None
