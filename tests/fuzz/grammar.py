"""Objects as the API server's own grammar allows them, mostly ordinary, with hostile spots: what every sink and parser must survive.

`GRAMMAR[kind](random)` makes one object; name, uid, resourceVersion and (where there is one) namespace are always there, as the API
server guarantees. `HEALTHY[kind](random)` makes one without any hostile spot. The same seed makes the same objects.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.our_kinds import OURS
from tests.fuzz.schemas import bruised
from tests.fuzz.values import NOT_QUANTITIES, Draw, Json, labels, metadata, owners

Generator = Callable[[Random], dict[str, Any]]
RATES = (0.01, 0.03, 0.1, 0.3)
"""How much of an object is hostile: mostly one spot or a few, so that parsers get deep."""


def _object(draw: Draw, api_version: str, kind: str, *, namespaced: bool = True, **parts: Json) -> dict[str, Any]:
    """An object whose metadata stays whole and whose other parts may be bruised: missing and null, which typed kinds allow."""
    body = {key: bruised(draw, value, types=False) for key, value in parts.items()}
    found = {"apiVersion": api_version, "kind": kind, "metadata": metadata(draw, namespaced=namespaced), **body}
    if draw.hostile():  # items of a list carry neither
        del found["apiVersion"], found["kind"]
    return found


def _resources(draw: Draw) -> Json:
    found: dict[str, Json] = {}
    draw.maybe(found, "requests", {"cpu": draw.quantity(), "memory": draw.quantity(), "example.com/gpu": draw.quantity()}, 0.8)
    draw.maybe(found, "limits", {"cpu": draw.quantity(), "memory": draw.quantity()}, 0.6)
    return found


def _container(draw: Draw) -> dict[str, Json]:
    container: dict[str, Json] = {
        "name": draw.one(("app", "sidecar"), ("c" * 63, "")),
        "image": draw.one(
            ("nginx", "ghcr.io/x/y:1", "a/b@sha256:" + "0" * 64),
            (None, "", ":", "@", "/", "a//b", "x" * 5000, "localhost/a", "[::1]:5000/a"),
        ),
        "resources": _resources(draw),
    }
    draw.maybe(container, "restartPolicy", draw.one(("Always",), (None, "Never")), 0.2)
    draw.maybe(
        container,
        "resizePolicy",
        draw.some(lambda: {"resourceName": "cpu", "restartPolicy": draw.one(("NotRequired", "RestartContainer"))}),
        0.3,
    )
    draw.maybe(container, "ports", draw.some(lambda: {"containerPort": draw.count()}), 0.3)
    return container


def _pod_spec(draw: Draw) -> dict[str, Json]:
    spec: dict[str, Json] = {"containers": draw.some(lambda: _container(draw))}
    draw.maybe(spec, "initContainers", draw.some(lambda: _container(draw)), 0.3)
    draw.maybe(spec, "nodeName", draw.one(("n0", "n1", "n2", "n9"), ("", None, "nope", "n" * 253)), 0.7)
    draw.maybe(spec, "schedulerName", draw.one(("tiphys", "default-scheduler"), ("", None)), 0.6)
    draw.maybe(spec, "overhead", draw.one(({"cpu": draw.quantity(), "memory": draw.quantity()}, {}), (None,)), 0.2)
    draw.maybe(spec, "resources", _resources(draw), 0.1)
    draw.maybe(spec, "priority", draw.count(), 0.1)
    draw.maybe(spec, "nodeSelector", labels(draw), 0.2)
    return spec


def _condition(draw: Draw, *types: str) -> dict[str, Json]:
    return {
        "type": draw.one(types, ("", None, "Odd")),
        "status": draw.one(("True", "False"), ("Unknown", "", None, "true")),
        "lastTransitionTime": draw.time(),
        "lastUpdateTime": draw.time(),
        "reason": draw.one(("Ok", "Deferred", "Infeasible"), (None, "r" * 1024)),
        "message": draw.one(("",), (None, "m" * 32_768)),
    }


def _pod(draw: Draw) -> dict[str, Any]:
    status = {
        "phase": draw.one(("Running", "Pending", "Succeeded", "Failed"), ("", None, "Unknown", "Odd")),
        "conditions": draw.some(lambda: _condition(draw, "PodScheduled", "Ready", "PodResizePending", "PodResizeInProgress")),
        "startTime": draw.time(),
        "podIP": draw.one(("10.0.0.7",), ("", None, "fe80::1%eth0")),
        "containerStatuses": draw.some(lambda: _container_status(draw)),
        "resize": draw.one(("", "Proposed"), (None, "Infeasible")),
    }
    return _object(draw, "v1", "Pod", spec=_pod_spec(draw), status=status)


def _container_status(draw: Draw) -> dict[str, Json]:
    return {
        "name": draw.one(("app", "sidecar"), ("", None)),
        "ready": draw.one((True, False), (None,)),
        "restartCount": draw.count(),
        "resources": _resources(draw),
        "allocatedResources": {"cpu": draw.quantity(), "memory": draw.quantity()},
        "state": draw.one(
            ({"running": {"startedAt": draw.time()}}, {"terminated": {"finishedAt": draw.time()}}, {}), (None, {"running": None})
        ),
    }


def _node(draw: Draw) -> dict[str, Any]:
    def room() -> dict[str, Json]:
        return {
            "cpu": draw.one(("4", "8", "3900m"), (draw.quantity(),)),
            "memory": draw.one(("16Gi", "32Gi"), (draw.quantity(),)),
            "pods": draw.quantity(),
        }

    status = {
        "allocatable": room(),
        "capacity": room(),
        "conditions": draw.some(lambda: _condition(draw, "Ready", "Ready", "MemoryPressure")),
        "images": draw.some(
            lambda: {"names": draw.some(lambda: draw.one(("docker.io/library/nginx:latest",), ("", "i" * 5000))), "sizeBytes": draw.count()}
        ),
        "addresses": draw.some(lambda: {"type": "InternalIP", "address": draw.one(("10.0.0.1",), ("", None))}),
    }
    spec = {
        "unschedulable": draw.one((False, True), (None,)),
        "taints": draw.some(lambda: {"key": "k", "effect": draw.one(("NoSchedule",), ("", None))}),
    }
    node = _object(draw, "v1", "Node", namespaced=False, spec=spec, status=status)
    node["metadata"]["name"] = draw.one(("n0", "n1", "n2", "n3"), ("n" * 253, "x.y"))
    return node


def _template(draw: Draw) -> Json:
    return {"metadata": {"creationTimestamp": None, "labels": labels(draw), "annotations": None}, "spec": _pod_spec(draw)}


def _workload_status(draw: Draw) -> dict[str, Json]:
    counts = (
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "currentReplicas",
        "observedGeneration",
    )
    status: dict[str, Json] = {key: draw.count() for key in counts if draw.random.random() < 0.8}
    draw.maybe(status, "conditions", draw.some(lambda: _condition(draw, "Available", "Progressing")))
    draw.maybe(status, "currentRevision", draw.one(("a-1",), ("", None)))
    draw.maybe(status, "updateRevision", draw.one(("a-1", "a-2"), ("", None)))
    return status


def _selector(draw: Draw) -> Json:
    wrong = {
        "matchExpressions": [
            {"key": "app", "operator": draw.one(("In", "Exists"), ("Gt", "", None)), "values": draw.one((["web"], []), (None,))}
        ]
    }
    return draw.one(({"matchLabels": {"app": "web"}}, wrong), (None, {}, {"matchLabels": None}, {"matchExpressions": None}))


def _workload(kind: str, **more: Callable[[Draw], Json]) -> Callable[[Draw], dict[str, Any]]:
    def make(draw: Draw) -> dict[str, Any]:
        spec = {
            "replicas": draw.count(),
            "selector": _selector(draw),
            "template": _template(draw),
            **{key: part(draw) for key, part in more.items()},
        }
        return _object(draw, "apps/v1", kind, spec=spec, status=_workload_status(draw))

    return make


def _rolling(draw: Draw) -> Json:
    rolling = {
        "maxSurge": draw.one((1, "25%"), (None, "-5%", "1e9%")),
        "maxUnavailable": draw.one((0, "25%"), (None,)),
        "partition": draw.count(),
    }
    return draw.one(
        ({"type": "RollingUpdate", "rollingUpdate": rolling}, {"type": "Recreate"}, {"type": "OnDelete"}), (None, {}, {"type": ""})
    )


def _resource_quota(draw: Draw) -> dict[str, Any]:
    def amounts() -> Json:
        keys = ("requests.cpu", "limits.cpu", "cpu", "pods", "requests.memory", "count/schedulingpolicies.tiphys.io")
        return {key: draw.quantity() for key in keys if draw.random.random() < 0.6}

    spec = {
        "hard": amounts(),
        "scopes": draw.one(([], ["NotTerminating"]), (None, ["Odd"])),
        "scopeSelector": draw.one(
            (None, {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}),
            ({}, {"matchExpressions": None}),
        ),
    }
    return _object(draw, "v1", "ResourceQuota", spec=spec, status={"hard": amounts(), "used": amounts()})


def _limit_range(draw: Draw) -> dict[str, Any]:
    def line() -> Json:
        keys = ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
        return {
            "type": draw.one(("Container", "Pod"), ("PersistentVolumeClaim", "", None)),
            **{key: {"cpu": draw.quantity(), "memory": draw.quantity()} for key in keys if draw.random.random() < 0.6},
        }

    return _object(draw, "v1", "LimitRange", spec={"limits": draw.some(line)})


def _hpa(draw: Draw) -> dict[str, Any]:
    target = {
        "apiVersion": "apps/v1",
        "kind": draw.one(("Deployment", "StatefulSet"), ("", None)),
        "name": draw.one(("web", "api"), ("", None)),
    }

    def metric() -> Json:
        utilization = {"type": "Utilization", "averageUtilization": draw.count(), "averageValue": draw.quantity()}
        return {
            "type": draw.one(("Resource",), ("External", "", None)),
            "resource": {"name": draw.one(("cpu", "memory"), ("",)), "target": utilization},
        }

    spec = {"scaleTargetRef": target, "minReplicas": draw.count(), "maxReplicas": draw.count(), "metrics": draw.some(metric)}
    status = {
        "currentReplicas": draw.count(),
        "desiredReplicas": draw.count(),
        "lastScaleTime": draw.time(),
        "conditions": draw.some(lambda: _condition(draw, "AbleToScale")),
    }
    return _object(draw, "autoscaling/v2", "HorizontalPodAutoscaler", spec=spec, status=status)


def _endpoint_slice(draw: Draw) -> dict[str, Any]:
    def endpoint() -> Json:
        conditions = draw.one(({"ready": True}, {"ready": False, "serving": True, "terminating": True}), (None, {}, {"ready": None}))
        addresses = draw.one((["10.0.0.4"], ["10.0.0.4", "10.0.0.5"]), (None, [], ["fd00::1"], ["a" * 253]))
        return {
            "addresses": addresses,
            "conditions": conditions,
            "nodeName": "n0",
            "targetRef": draw.one(({"kind": "Pod", "name": "p"},), (None, {})),
        }

    def port() -> Json:
        return {"name": draw.one(("", "http"), (None,)), "port": draw.one((80, 8080), (None, 0, 65535)), "protocol": "TCP"}

    found = _object(
        draw,
        "discovery.k8s.io/v1",
        "EndpointSlice",
        addressType=draw.one(("IPv4", "IPv6"), ("FQDN",)),
        endpoints=draw.some(endpoint),
        ports=draw.some(port),
    )
    found["metadata"]["labels"] = draw.one(({"kubernetes.io/service-name": "web"},), (None, {}, {"kubernetes.io/service-name": ""}))
    return found


def _config_map(draw: Draw) -> dict[str, Any]:
    data = {
        "enabled": draw.one(("true", "false"), ("", "FALSE ", None, "0")),
        "card.json": draw.one(("{}",), ("[]", "{", "null", "[" * 10_000, "\u0000", None)),
    }
    binary = {"weights.safetensors": draw.one(("AAAA", "CAAAAAAAAAB7fQ=="), ("", "not base64", "é", None, "A" * 200_000, "//////////8="))}
    return _object(draw, "v1", "ConfigMap", data=data, binaryData=binary, immutable=draw.one((True, False), (None,)))


_KINDS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "Pod": _pod,
    "Node": _node,
    "Deployment": _workload("Deployment", strategy=_rolling, paused=lambda draw: draw.one((False, True), (None,))),
    "StatefulSet": _workload("StatefulSet", updateStrategy=_rolling, ordinals=lambda draw: draw.one(({"start": 0}, {"start": 3}), (None,))),
    "ReplicaSet": _workload("ReplicaSet", minReadySeconds=Draw.count),
    "ResourceQuota": _resource_quota,
    "LimitRange": _limit_range,
    "HorizontalPodAutoscaler": _hpa,
    "EndpointSlice": _endpoint_slice,
    "ConfigMap": _config_map,
    **OURS,
}


def _generator(make: Callable[[Draw], dict[str, Any]], rates: tuple[float, ...]) -> Generator:
    return lambda random: make(Draw(random, random.choice(rates)))


GRAMMAR: dict[str, Generator] = {kind: _generator(make, RATES) for kind, make in _KINDS.items()}
HEALTHY: dict[str, Generator] = {kind: _generator(make, (0.0,)) for kind, make in _KINDS.items()}

__all__ = ["GRAMMAR", "HEALTHY", "NOT_QUANTITIES", "Draw", "owners"]
