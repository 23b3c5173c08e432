"""A workload and its pods as scaling sees them: plain facts from the API server's objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tiphys_models.domain.quantity import cpu_milli, memory_bytes, timestamp_s
from tiphys_models.domain.selector import LabelSelector, Requirement

_FINISHED = ("Succeeded", "Failed")
_HASH_LABEL = "pod-template-hash"


class Resize(StrEnum):
    """Where a pod's resize stands."""

    NONE = "None"
    IN_PROGRESS = "InProgress"
    ERROR = "Error"
    """The kubelet tries again by itself."""
    DEFERRED = "Deferred"
    """Fits the node, but not now."""
    INFEASIBLE = "Infeasible"
    """Never fits the node."""


@dataclass(frozen=True, slots=True)
class ContainerCpu:
    """A container's CPU in millicores; None where it is not set."""

    name: str
    request_m: int | None
    limit_m: int | None
    actual_limit_m: int | None = None
    """As the kubelet reports it; None before it does."""
    actual_request_m: int | None = None


@dataclass(frozen=True, slots=True)
class ScaledPod:
    """An unfinished pod."""

    uid: str
    namespace: str
    name: str
    version: str
    labels: Mapping[str, str]
    owner: tuple[str, str]
    """Kind and name of its controller."""
    node: str
    request_m: int
    """CPU that counts on its node: the larger of what it asks for and what it has."""
    containers: tuple[ContainerCpu, ...]
    ready: bool
    deleting: bool
    unschedulable: bool
    started_s: float | None
    resize: Resize
    resize_since_s: float | None
    address: str = ""
    """Its IP address, once it has one."""
    restarts: int = 0
    """Of all its containers."""

    def container(self, name: str | None) -> ContainerCpu | None:
        """By name; without one, the first."""
        return next((c for c in self.containers if name is None or c.name == name), None)


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node's CPU."""

    name: str
    allocatable_m: int


@dataclass(frozen=True, slots=True)
class Target:
    """A Deployment or StatefulSet."""

    kind: str
    namespace: str
    name: str
    version: str
    replicas: int
    """As wanted in its spec."""
    selector: LabelSelector
    template: tuple[ContainerCpu, ...]
    template_requests: Mapping[str, float]
    """What a new pod adds to quotas: requests.cpu, limits.cpu in millicores, requests.memory, limits.memory in bytes."""
    manager: str
    """Who set the number of pods last, as far as managed fields tell."""
    rolling_out: bool
    not_created: str
    """Why pods cannot be created; empty if they can."""

    def container(self, name: str | None) -> ContainerCpu | None:
        """Of the template, by name; without one, the first."""
        return next((c for c in self.template if name is None or c.name == name), None)

    def owns(self, pod: ScaledPod) -> bool:
        """Whether it is one of ours, and not merely labelled alike."""
        if pod.namespace != self.namespace or not self.selector.matches(pod.labels):
            return False
        if self.kind == "StatefulSet":
            return pod.owner == ("StatefulSet", self.name)
        return pod.owner == ("ReplicaSet", f"{self.name}-{pod.labels.get(_HASH_LABEL, '')}")


def target_of(obj: Mapping[str, Any], kind: str) -> Target:
    """From a Deployment or StatefulSet as the API server sends it."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    containers = spec["template"]["spec"].get("containers") or ()
    selector = spec.get("selector") or {}
    expressions = tuple(
        Requirement(line["key"], line["operator"], frozenset(line.get("values") or ())) for line in selector.get("matchExpressions") or ()
    )
    replicas = spec.get("replicas")
    return Target(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=metadata["resourceVersion"],
        replicas=1 if replicas is None else int(replicas),
        selector=LabelSelector.of(selector.get("matchLabels") or {}, expressions),
        template=tuple(_cpu(c, {}) for c in containers),
        template_requests=_requests(containers),
        manager=_manager(metadata.get("managedFields") or ()),
        rolling_out=_rolling_out(metadata, status, _to_update(kind, spec, status)),
        not_created=_not_created(status),
    )


def pod_of(obj: Mapping[str, Any]) -> ScaledPod | None:
    """From a pod as the API server sends it; None for one that has ended."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    if status.get("phase") in _FINISHED:
        return None
    reported = {c.get("name"): c.get("resources") or {} for c in status.get("containerStatuses") or ()}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    containers = tuple(_cpu(c, reported.get(c.get("name")) or {}) for c in spec.get("containers") or ())
    owner: Mapping[str, Any] = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    resize, since = _resize(conditions)
    return ScaledPod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=metadata["resourceVersion"],
        labels=dict(metadata.get("labels") or {}),
        owner=(str(owner.get("kind", "")), str(owner.get("name", ""))),
        node=spec.get("nodeName") or "",
        request_m=sum(max(c.request_m or 0, c.actual_request_m or 0) for c in containers),
        containers=containers,
        ready=(conditions.get("Ready") or {}).get("status") == "True",
        deleting=bool(metadata.get("deletionTimestamp")),
        unschedulable=(conditions.get("PodScheduled") or {}).get("reason") == "Unschedulable",
        started_s=timestamp_s(status.get("startTime")),
        resize=resize,
        resize_since_s=since,
        address=str(status.get("podIP") or ""),
        restarts=sum(int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or ()),
    )


def node_of(obj: Mapping[str, Any]) -> NodeRoom:
    """From a node as the API server sends it."""
    allocatable = (obj.get("status") or {}).get("allocatable") or {}
    return NodeRoom(obj["metadata"]["name"], cpu_milli(allocatable.get("cpu") or 0))


def _cpu(container: Mapping[str, Any], reported: Mapping[str, Any]) -> ContainerCpu:
    resources = container.get("resources") or {}
    limit = _milli(resources.get("limits"))
    request = _milli(resources.get("requests"))
    return ContainerCpu(
        name=str(container.get("name", "")),
        request_m=limit if request is None else request,
        limit_m=limit,
        actual_limit_m=_milli(reported.get("limits")),
        actual_request_m=_milli(reported.get("requests")),
    )


def _milli(resources: Mapping[str, Any] | None) -> int | None:
    value = (resources or {}).get("cpu")
    return None if value is None else cpu_milli(value)


def _requests(containers: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
    total = dict.fromkeys(("requests.cpu", "limits.cpu", "requests.memory", "limits.memory"), 0.0)
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        for part, amounts in (("requests", requests), ("limits", limits)):
            total[f"{part}.cpu"] += cpu_milli(amounts.get("cpu") or 0)
            total[f"{part}.memory"] += memory_bytes(amounts.get("memory") or 0)
    return total


def _manager(fields: Iterable[Mapping[str, Any]]) -> str:
    setters = [entry for entry in fields if "f:replicas" in (((entry.get("fieldsV1") or {}).get("f:spec")) or {})]
    # an entry without a manager is unusual, but the API server keeps it
    return str(max(setters, key=lambda entry: str(entry.get("time") or "")).get("manager") or "") if setters else ""


def _rolling_out(metadata: Mapping[str, Any], status: Mapping[str, Any], to_update: int) -> bool:
    seen = status.get("observedGeneration") or 0
    return seen == metadata.get("generation") and (status.get("updatedReplicas") or 0) < to_update


def _to_update(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """How many pods the workload's controller will bring to the newest template by itself."""
    replicas: int = status.get("replicas") or 0
    strategy = (spec.get("updateStrategy") or {}) if kind == "StatefulSet" else {}
    if strategy.get("type") == "OnDelete":
        return 0
    # ordinals below the partition keep their revision for as long as somebody wants them to
    return max(replicas - ((strategy.get("rollingUpdate") or {}).get("partition") or 0), 0)


def _not_created(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "pods cannot be created")[:300]
    return ""


def _resize(conditions: Mapping[Any, Mapping[str, Any]]) -> tuple[Resize, float | None]:
    pending, progress = conditions.get("PodResizePending"), conditions.get("PodResizeInProgress")
    if pending is not None and pending.get("status") == "True":
        kind = Resize.INFEASIBLE if pending.get("reason") == "Infeasible" else Resize.DEFERRED
        return kind, timestamp_s(pending.get("lastTransitionTime"))
    if progress is not None and progress.get("status") == "True":
        kind = Resize.ERROR if progress.get("reason") == "Error" else Resize.IN_PROGRESS
        return kind, timestamp_s(progress.get("lastTransitionTime"))
    return Resize.NONE, None
