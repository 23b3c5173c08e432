"""Our seven kinds with their statuses: specs that hold, changed here and there, and statuses that are anything the schema allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tests.fuzz.schemas import bruised, within
from tests.fuzz.values import Draw, Json, metadata
from tiphys_models.api.base import API_VERSION
from tiphys_models.api.crd import spec_schema, status_schema
from tiphys_models.api.resources import RESOURCES

_BY_KIND = {resource.kind: resource for resource in RESOURCES}


@cache
def _schemas(kind: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    resource = _BY_KIND[kind]
    return spec_schema(resource), status_schema(resource) if resource.status is not None else None


def _ours(kind: str, spec: Callable[[Draw], dict[str, Json]]) -> Callable[[Draw], dict[str, Any]]:
    def make(draw: Draw) -> dict[str, Any]:
        spec_of, status_of = _schemas(kind)
        found = spec(draw)
        for key, child in spec_of["properties"].items():
            if draw.hostile():
                found[key] = within(draw, child)
        obj: dict[str, Any] = {
            "apiVersion": API_VERSION,
            "kind": kind,
            "metadata": metadata(draw),
            "spec": bruised(draw, found, types=draw.random.random() < 0.5),
        }
        if status_of is not None and draw.random.random() < 0.8:
            status = bruised(draw, within(draw, status_of), types=False)
            if isinstance(status, dict) and draw.random.random() < 0.7:
                status["observedGeneration"] = obj["metadata"].get("generation", 0)
            obj["status"] = status
        return obj

    return make


def _scheduling_policy(draw: Draw) -> dict[str, Json]:
    mode = draw.one(("Shadow", "Active", "Canary", "Off"))
    spec: dict[str, Json] = {
        "mode": mode,
        "selector": draw.one(({}, {"matchLabels": {"app": "web"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]})),
    }
    if mode == "Canary":
        spec["canary"] = {"percent": 10}
    if draw.random.random() < 0.3:
        spec["select"] = {"by": draw.one(("preview", "ucb"))}
    else:
        spec["policy"] = draw.one(("warm-first", "hashing", "faasrank"))
    return spec


def _scaling_policy(draw: Draw) -> dict[str, Json]:
    spec: dict[str, Json] = {
        "targetRef": {"kind": draw.one(("Deployment", "StatefulSet")), "name": draw.one(("web", "api"))},
        "mode": draw.one(("Active", "Recommend", "Off")),
        "objective": {"latencyMilliseconds": 400, "metrics": {"preset": draw.one(("tiphys", "otel", "istio", "linkerd"))}},
        "horizontal": {"minReplicas": 1, "maxReplicas": draw.one((4, 10))},
    }
    draw.maybe(spec, "vertical", {"minCpuMilli": 50, "maxCpuMilli": 1000}, 0.5)
    draw.maybe(spec, "agent", {"kind": draw.one(("rule", "hpa", "combined", "naive"))}, 0.5)
    return spec


def _placement_plan(draw: Draw) -> dict[str, Json]:
    def slots() -> Json:
        return {"node": draw.one(("n0", "n1"), ("gone", "n" * 253)), "slots": draw.one((1, 2, 3), (10_000, 0, -1, 10**30))}

    def function() -> Json:
        return {"function": draw.one(("shop/f", "shop/Job/j"), ("f" * 512, "/")), "nodes": draw.some(slots)}

    return {
        "policyUid": draw.one(("u1", "u2")),
        "policyGeneration": draw.one((1, 2)),
        "planner": "cost-lean",
        "interval": draw.one((1, 7), (2**63 - 1,)),
        "validUntil": draw.time(),
        "functions": draw.some(function),
    }


def _inference_site(draw: Draw) -> dict[str, Json]:
    spec: dict[str, Json] = {"layer": draw.one(("antenna", "co", "dc", "cloud")), "access": draw.one((True, False))}
    draw.maybe(spec, "probe", draw.one(({"url": "http://10.0.0.9:80/healthz"}, {"host": "10.0.0.9", "port": 443})), 0.5)
    draw.maybe(spec, "delays", [{"from": "site-a", "meanMs": draw.one((5, 2.5), (0, 60_000, 1e308)), "sigmaMs": 1}], 0.6)
    return spec


def _model_variant(draw: Draw) -> dict[str, Json]:
    return {
        "task": "detect",
        "model": "yolo",
        "site": draw.one(("site-a", "site-b"), ("nowhere",)),
        "accuracy": draw.one((40, 50.5), (0, 100)),
        "delayMs": draw.one((20, 35.5), (0, 3_600_000)),
        "capacityQps": draw.one((10, 50), (0.001, 1_000_000)),
        "profiledKb": draw.one((100, 250), (0.001, 1_000_000)),
        "hardware": draw.one(("cpu", "gpu")),
        "endpoint": draw.one(({"url": "http://10.0.0.9:80"}, {"service": {"name": "web", "port": 80}})),
    }


def _stream_policy(draw: Draw) -> dict[str, Json]:
    return {
        "accessSite": draw.one(("site-a", "site-b"), ("nowhere",)),
        "mode": draw.one(("Active", "Off")),
        "policy": draw.one(("relative-load", "aset-wide", "score")),
    }


def _learned_model(draw: Draw) -> dict[str, Json]:
    return {
        "policy": draw.one(("faasrank", "combined", "q-table")),
        "stage": draw.one(("candidate", "shadow", "canary", "active", "retired")),
        "weights": draw.one(({"configMap": {"name": "weights"}}, {"file": "m.safetensors"})),
        "sha256": "0" * 64,
        "featureSchema": "faasrank-42/1",
        "card": draw.one(("{}",), ("[]", "[" * 60_000, '{"a": 1e999}', "null", '"\\ud800"')),
    }


OURS: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "SchedulingPolicy": _ours("SchedulingPolicy", _scheduling_policy),
    "ScalingPolicy": _ours("ScalingPolicy", _scaling_policy),
    "PlacementPlan": _ours("PlacementPlan", _placement_plan),
    "InferenceSite": _ours("InferenceSite", _inference_site),
    "ModelVariant": _ours("ModelVariant", _model_variant),
    "StreamPolicy": _ours("StreamPolicy", _stream_policy),
    "LearnedModel": _ours("LearnedModel", _learned_model),
}
