"""Pods that a ScalingPolicy can resize, whole; of any pod the CPU that counts on its node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from sys import intern
from typing import Any

from tiphys_models.base.quantity import cpu_milli, timestamp_s

_FINISHED = ("Succeeded", "Failed")


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
    """The CPU limit that the kubelet reports to be in force; None before it reports one."""
    actual_request_m: int | None = None


@dataclass(frozen=True, slots=True)
class ScaledPod:
    """A pod that has not ended, with what resizing it needs."""

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
    """Restarts, summed over the pod's containers."""
    created_s: float | None = None
    ready_s: float | None = None
    """When it last became ready; None while it is not."""

    def container(self, name: str | None) -> ContainerCpu | None:
        """The container of this name; without a name, the first one."""
        return next((c for c in self.containers if name is None or c.name == name), None)


def pod_of(obj: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> ScaledPod | None:
    """A `ScaledPod` made from a pod as the API server sends it; None if it has ended. `labels`: an equal mapping to keep instead."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    if status.get("phase") in _FINISHED:
        return None
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    containers = _containers(spec, status)
    readiness = conditions.get("Ready") or {}
    ready = readiness.get("status") == "True"
    owner: Mapping[str, Any] = next((o for o in metadata.get("ownerReferences") or () if o.get("controller")), {})
    resize, since = _resize(conditions)
    return ScaledPod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=metadata["resourceVersion"],
        labels=dict(metadata.get("labels") or {}) if labels is None else labels,
        owner=(str(owner.get("kind", "")), str(owner.get("name", ""))),
        node=spec.get("nodeName") or "",
        request_m=_counted(containers),
        containers=containers,
        ready=ready,
        deleting=bool(metadata.get("deletionTimestamp")),
        unschedulable=(conditions.get("PodScheduled") or {}).get("reason") == "Unschedulable",
        started_s=timestamp_s(status.get("startTime")),
        resize=resize,
        resize_since_s=since,
        address=str(status.get("podIP") or ""),
        restarts=sum(int(c.get("restartCount") or 0) for c in status.get("containerStatuses") or ()),
        created_s=timestamp_s(metadata.get("creationTimestamp")),
        ready_s=timestamp_s(readiness.get("lastTransitionTime")) if ready else None,
    )


def request_m(obj: Mapping[str, Any]) -> int:
    """CPU that a pod counts with on its node."""
    return _counted(_containers(obj.get("spec") or {}, obj.get("status") or {}))


def _counted(containers: Iterable[ContainerCpu]) -> int:
    return sum(max(c.request_m or 0, c.actual_request_m or 0) for c in containers)


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[ContainerCpu, ...]:
    reported = {c.get("name"): c.get("resources") or {} for c in status.get("containerStatuses") or ()}
    return tuple(container_cpu(c, reported.get(c.get("name")) or {}) for c in spec.get("containers") or ())


def container_cpu(container: Mapping[str, Any], reported: Mapping[str, Any]) -> ContainerCpu:
    """What a container asks for and has."""
    resources = container.get("resources") or {}
    limit = _milli(resources.get("limits"))
    request = _milli(resources.get("requests"))
    return ContainerCpu(
        name=intern(str(container.get("name", ""))),
        request_m=limit if request is None else request,
        limit_m=limit,
        actual_limit_m=_milli(reported.get("limits")),
        actual_request_m=_milli(reported.get("requests")),
    )


def _milli(resources: Mapping[str, Any] | None) -> int | None:
    value = (resources or {}).get("cpu")
    return None if value is None else cpu_milli(value)


def _resize(conditions: Mapping[Any, Mapping[str, Any]]) -> tuple[Resize, float | None]:
    pending, progress = conditions.get("PodResizePending"), conditions.get("PodResizeInProgress")
    if pending is not None and pending.get("status") == "True":
        kind = Resize.INFEASIBLE if pending.get("reason") == "Infeasible" else Resize.DEFERRED
        return kind, timestamp_s(pending.get("lastTransitionTime"))
    if progress is not None and progress.get("status") == "True":
        kind = Resize.ERROR if progress.get("reason") == "Error" else Resize.IN_PROGRESS
        return kind, timestamp_s(progress.get("lastTransitionTime"))
    return Resize.NONE, None
