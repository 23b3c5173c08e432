"""Objects of binding as the API server sends them."""

from __future__ import annotations

from typing import Any

from tests.binding_corpus import POLICY, SITE, VARIANT
from tiphys_models.base.quantity import rfc3339

NOW_S = 1_700_000_000.0
NOW = rfc3339(NOW_S)
SERVICE = {"service": {"name": "yolo", "port": 8000}}


def made(kind: str, name: str, spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", "uid": f"{kind}-{name}", "generation": 1, "resourceVersion": "1", "creationTimestamp": NOW}
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}


def site(name: str = "a1", **spec: Any) -> dict[str, Any]:
    return made("InferenceSite", name, SITE | spec)


def variant(name: str = "yolo", **spec: Any) -> dict[str, Any]:
    return made("ModelVariant", name, VARIANT | spec)


def policy(name: str = "streams", **spec: Any) -> dict[str, Any]:
    return made("StreamPolicy", name, POLICY | {"mode": "Active"} | spec)


def condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": NOW}


def endpoint_slice(name: str, service: str, *addresses: str, family: str = "IPv4", ports: int = 1, **conditions: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": name,
            "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": family,
        "ports": [{"name": f"p{n}", "port": 8000 + n} for n in range(ports)],
        "endpoints": [{"addresses": [address], "conditions": conditions} for address in addresses],
    }
