"""Pods as the API server sends them, by what matters to hints."""

from __future__ import annotations

from typing import Any

from tiphys_models.base.quantity import rfc3339
from tiphys_operator.cluster.live import live_pod
from tiphys_operator.hints.pods import HintedPod, hinted_pod

NOW_S = 1_800_000_000.0


def pod(name: str = "a", owner: str = "Job", age_s: float = 10.0, app: str = "encode", node: str = "n0", **parts: Any) -> dict[str, Any]:
    """A running pod of an application, owned by a Job unless told otherwise; `parts`: annotations, spec, status, metadata."""
    started = rfc3339(NOW_S - age_s)
    metadata: dict[str, Any] = {
        "name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": started,
        "labels": {"tiphys.io/function": app}, "annotations": dict(parts.pop("annotations", {})),
    }  # fmt: skip
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    metadata |= parts.pop("metadata", {})
    restart = {"restartPolicy": "Never" if owner in ("", "Job") else "Always"}
    spec = {"schedulerName": "tiphys", "nodeName": node, "containers": []} | restart | parts.pop("spec", {})
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "startTime": started} | parts.pop("status", {})}


def seen(obj: dict[str, Any] | None = None, **parts: Any) -> HintedPod:
    """The same, as hints see it."""
    one = pod(**parts) if obj is None else obj
    found = hinted_pod(one, live_pod(one, NOW_S))
    assert found is not None
    return found
