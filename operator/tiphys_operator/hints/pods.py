"""Bound pods as hints need them: a follower of the one watch on pods. What has ended by itself teaches run times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.facts import SAFE_TO_EVICT
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.placement.hints import KEPT
from tiphys_operator.cluster.live import LivePod
from tiphys_operator.hints.run_times import RunTimes

_ENDING = ("Never", "OnFailure")
_STAYING = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
_LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True)
class HintedPod:
    """A bound pod that has not ended."""

    uid: str
    namespace: str
    name: str
    version: str
    """resourceVersion: the precondition of a write."""
    application: str
    node: str
    started_s: float | None
    """When its kubelet took it, from which Karpenter counts; else when it was bound."""
    ends_by_itself: bool
    of_replica_set: bool
    of_machine: bool
    """Whether a DaemonSet owns it: then it keeps no node."""
    safe_to_evict: bool
    """Whether its author has not forbidden the Cluster Autoscaler to evict it."""
    annotations: Mapping[str, str]
    """Hints and our mark, whoever wrote them."""
    deleting: bool

    @property
    def key(self) -> str:
        """The pod as namespace/name."""
        return f"{self.namespace}/{self.name}"


def hinted_pod(obj: Mapping[str, Any], live: LivePod) -> HintedPod | None:
    """The pod as the API server sends it; None for one that has no node or has ended."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    if not live.node or live.finished_s is not None:
        return None
    owner = next((str(o.get("kind", "")) for o in metadata.get("ownerReferences") or () if o.get("controller")), "")
    annotations = metadata.get("annotations") or {}
    ends = owner == "Job" or spec.get("restartPolicy") in _ENDING
    return HintedPod(
        uid=live.uid,
        namespace=live.namespace,
        name=str(metadata["name"]),
        version=str(metadata.get("resourceVersion") or ""),
        application=live.function,
        node=live.node,
        started_s=_started_s(status, live),
        ends_by_itself=ends and owner not in _STAYING,
        of_replica_set=owner == "ReplicaSet",
        of_machine=live.of_machine,
        safe_to_evict=annotations.get(SAFE_TO_EVICT) != "false",
        annotations={name: str(annotations[name])[:_LONGEST_VALUE] for name in KEPT & annotations.keys()},
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _started_s(status: Mapping[str, Any], live: LivePod) -> float | None:
    try:
        started_s = timestamp_s(status.get("startTime"))
    except InvalidInput:
        started_s = None
    return live.scheduled_s if started_s is None else started_s


class HintedPods:
    """Bound pods by uid and by node."""

    def __init__(self, clock: Clock, run_times: RunTimes) -> None:
        self._clock, self._run_times = clock, run_times
        self._pods: dict[str, HintedPod] = {}
        self._on_node: dict[str, dict[str, HintedPod]] = {}
        self._changed: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> HintedPod | None:
        """The pod as it was last seen."""
        return self._pods.get(uid)

    def uids(self) -> list[str]:
        """All pods."""
        return list(self._pods)

    def changed(self) -> list[str]:
        """Pods that have come or changed since this was last asked."""
        found = list(self._changed)
        self._changed.clear()
        return found

    def on_node(self, node: str) -> Iterable[HintedPod]:
        """Pods of a node."""
        return self._on_node.get(node, {}).values()

    def put(self, obj: Mapping[str, Any], live: LivePod) -> None:
        """The watch shows a new or changed pod."""
        if live.finished_s is not None:
            self._ended(live.uid, live.finished_s)
            return
        pod = hinted_pod(obj, live)
        self._forget(live.uid)
        if pod is not None:
            self._pods[pod.uid] = self._on_node.setdefault(pod.node, {})[pod.uid] = pod
            self._changed[pod.uid] = None

    def drop(self, uid: str, *, ended: bool) -> None:
        """The pod is there no longer; `ended`: it was seen to go just now, and nobody had asked it to."""
        if ended:
            self._ended(uid, self._clock.now_s())
        else:
            self._forget(uid)

    def _ended(self, uid: str, at_s: float) -> None:
        pod = self._forget(uid)
        if pod is not None and pod.ends_by_itself and not pod.deleting and pod.started_s is not None:
            self._run_times.ended(pod.application, at_s - pod.started_s)

    def _forget(self, uid: str) -> HintedPod | None:
        pod = self._pods.pop(uid, None)
        self._changed.pop(uid, None)
        if pod is not None:
            there = self._on_node[pod.node]
            del there[uid]
            if not there:
                del self._on_node[pod.node]
        return pod
