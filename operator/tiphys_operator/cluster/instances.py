"""Pods that are instances of a function platform's functions: what must be known of one to ask whether it is idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from tiphys_models.base.facts import function_of

REVISION_LABEL = "serving.knative.dev/revision"
"""Knative puts it on every pod of a revision."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A pod that calls of one function can be given to."""

    pod: str
    function: str
    node: str
    address: str


def instance_of(obj: Mapping[str, Any]) -> Instance | None:
    """The instance that a pod is; None for other pods, and for one that no call may be given to: not ready, or about to go."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    if not (metadata.get("labels") or {}).get(REVISION_LABEL) or metadata.get("deletionTimestamp"):
        return None
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
    node, address, function = spec.get("nodeName") or "", str(status.get("podIP") or ""), function_of(metadata)
    # what listens at the address of a node is not the pod's own
    if not (ready and node and address and function) or spec.get("hostNetwork"):
        return None
    return Instance(str(metadata["name"]), intern(function), intern(node), address)
