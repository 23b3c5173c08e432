"""Builders of what scaling sees; tests name only what matters to them."""

from __future__ import annotations

from typing import Any

from tiphys_models.base.quantity import rfc3339
from tiphys_models.scaling.state import Window
from tiphys_operator.cluster.live import LiveNode, live_node
from tiphys_operator.cluster.scaled import ScaledPod, pod_of
from tiphys_operator.scaling.measured import Measured
from tiphys_operator.scaling.seen import ScalingSeen, scaling_seen
from tiphys_operator.scaling.workload import Target, target_of

NOW_S = 1_800_000_000.0


def deployment(replicas: int = 2, cpu: str = "100m", request: str = "50m", **changes: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": request, "memory": "64Mi"}, "limits": {"cpu": cpu, "memory": "128Mi"}}
    template = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    obj: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "resourceVersion": "10", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas},
    }
    obj["status"] |= changes.pop("status", {})
    obj["metadata"] |= changes.pop("metadata", {})
    return obj


def target(replicas: int = 2, cpu: str = "100m", request: str = "50m", **changes: Any) -> Target:
    return target_of(deployment(replicas, cpu, request, **changes), "Deployment")


def pod_object(name: str = "web-1", cpu: str = "100m", actual: str | None = "", node: str = "n1", **changes: Any) -> dict[str, Any]:
    """`actual`: as the kubelet reports it; None before it does; empty: the same."""
    request = f"{int(cpu.removesuffix('m')) // 2}m"
    resources = {"requests": {"cpu": request, "memory": "64Mi"}, "limits": {"cpu": cpu, "memory": "128Mi"}}
    has = actual or cpu
    reported = {"requests": {"cpu": f"{int(has.removesuffix('m')) // 2}m"}, "limits": {"cpu": has}}
    owner = {"kind": "ReplicaSet", "name": "web-abc", "controller": True}
    metadata = {
        "uid": name,
        "name": name,
        "namespace": "default",
        "resourceVersion": "5",
        "labels": {"app": "web", "pod-template-hash": "abc"},
    }
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": rfc3339(NOW_S - 600),
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main"} | ({"resources": reported} if actual is not None else {})],
    }
    status["conditions"] += changes.pop("conditions", [])
    obj = {
        "metadata": metadata | {"ownerReferences": [owner]} | changes.pop("metadata", {}),
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": status | changes.pop("status", {}),
    }
    assert not changes
    return obj


def pod(name: str = "web-1", **changes: Any) -> ScaledPod:
    made = pod_of(pod_object(name, **changes))
    assert made is not None
    return made


def resizing(kind: str, reason: str, since_s: float = NOW_S) -> list[dict[str, Any]]:
    return [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": rfc3339(since_s)}]


def host(name: str, cpu_m: int) -> LiveNode:
    return live_node({"metadata": {"name": name, "uid": name}, "status": {"allocatable": {"cpu": f"{cpu_m}m"}}})


def policy_object(**spec: Any) -> dict[str, Any]:
    wanted = {
        "targetRef": {"kind": "Deployment", "name": "web"},
        "mode": "Active",
        "objective": {"latencyMilliseconds": 400},
        "horizontal": {"minReplicas": 1, "maxReplicas": 10},
        "vertical": {"minCpuMilli": 50, "maxCpuMilli": 400},
        "agent": {"requestCpuMicroseconds": 2000},
    }
    metadata = {
        "name": "web",
        "namespace": "default",
        "uid": "p",
        "generation": 1,
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    kept = {key: value for key, value in (wanted | spec).items() if value is not None}
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": "ScalingPolicy", "metadata": metadata, "spec": kept}


def policy(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> ScalingSeen:
    obj = policy_object(**spec)
    obj["metadata"] |= metadata or {}
    if status is not None:
        obj["status"] = status
    return scaling_seen(obj)


def window(rate: float = 100.0, late: float | None = 0.0, at_s: float = NOW_S - 5, length_s: float = 15.0, **changes: Any) -> Window:
    count = rate * length_s
    return Window(at_s, length_s, count, count, late, **({"p90_s": 0.1, "used_cpu_m": rate * 2} | changes))


def measured(*windows: Window, **changes: Any) -> Measured:
    return Measured(windows or (window(),), **changes)
