"""A cluster in a file: nodes, pods, policies and readings, enough for the extender to answer without an API server.

Written by `tiphys snapshot`, made up by benchmarks and contract tests, sent in by users who want help. It holds no environment,
no secrets and no annotations: objects are cut down to what `node_facts` and `pod_facts` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tiphys_models.domain.errors import InvalidInput
from tiphys_models.domain.facts import FUNCTION_LABEL, INSTANCE_TYPE_LABEL, node_facts, pod_facts
from tiphys_models.features.prometheus import ReadingTable
from tiphys_models.features.schema import NODE_READINGS, SCHEMA
from tiphys_models.placement.state import PlacementState

FORMAT = "tiphys-snapshot/1"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parts, as JSON objects; `readings[node]` has 21 numbers or nulls, `idle[function][node]` a count."""

    taken_at_s: float
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    policies: list[dict[str, Any]]
    readings: dict[str, list[float | None]] = field(default_factory=dict)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)

    def fill(self, state: PlacementState, now_s: float) -> None:
        """Put everything into a state, as if it had just been seen and measured."""
        for node in self.nodes:
            state.put_node(node_facts(node))
        for pod in self.pods:
            state.put_pod(pod_facts(pod), now_s)
        if self.readings:
            values = np.array([[np.nan if v is None else v for v in row] for row in self.readings.values()], np.float32)
            state.put_readings(list(self.readings), values, np.full(len(self.readings), now_s))
        if self.idle:
            state.put_idle(self.idle, now_s)


def read_snapshot(path: Path) -> Snapshot:
    """From a file; InvalidInput says what is wrong with it."""
    try:
        content = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"cannot read snapshot {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"snapshot {path} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InvalidInput(f"snapshot {path} has no format {FORMAT!r}: write it with `tiphys snapshot`")
    if content.get("feature_schema") != SCHEMA:
        raise InvalidInput(f"snapshot {path} holds readings of {content.get('feature_schema')!r}, this release reads {SCHEMA!r}")
    try:
        snapshot = Snapshot(
            float(content["taken_at_s"]), content["nodes"], content["pods"], content["policies"], content["readings"], content["idle"]
        )
        wrong = [node for node, row in snapshot.readings.items() if len(row) != len(NODE_READINGS)]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"snapshot {path} is incomplete: {error!r}") from error
    if wrong:
        raise InvalidInput(f"snapshot {path}: node {wrong[0]} has not {len(NODE_READINGS)} readings")
    return snapshot


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """To a file, objects cut down."""
    content = {
        "format": FORMAT,
        "feature_schema": SCHEMA,
        "taken_at_s": snapshot.taken_at_s,
        "nodes": [slim_node(node) for node in snapshot.nodes],
        "pods": [slim_pod(pod) for pod in snapshot.pods],
        "policies": [slim_policy(policy) for policy in snapshot.policies],
        "readings": snapshot.readings,
        "idle": snapshot.idle,
    }
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE))


def readings_of(table: ReadingTable) -> dict[str, list[float | None]]:
    """A reading table as a snapshot holds it."""
    rows = zip(table.names, table.values.tolist(), strict=True)
    return {name: [None if v != v else v for v in row] for name, row in rows}


def slim_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """What `node_facts` reads, and no more."""
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k == INSTANCE_TYPE_LABEL}
    return {
        "metadata": {"name": metadata.get("name"), "labels": labels},
        "spec": {"unschedulable": bool((node.get("spec") or {}).get("unschedulable"))},
        "status": {
            "allocatable": {k: v for k, v in (status.get("allocatable") or {}).items() if k in ("cpu", "memory")},
            "conditions": [
                {"type": c.get("type"), "status": c.get("status")} for c in status.get("conditions") or () if c.get("type") == "Ready"
            ],
            "images": [{"names": i.get("names")} for i in status.get("images") or ()],
        },
    }


def slim_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """What `pod_facts` reads, and no more: containers keep only their image and resource requests."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    owners = [
        {"kind": o.get("kind"), "name": o.get("name"), "controller": o.get("controller")} for o in metadata.get("ownerReferences") or ()
    ]
    return {
        "metadata": {
            "uid": metadata.get("uid"),
            "namespace": metadata.get("namespace"),
            "name": metadata.get("name"),
            "labels": {k: v for k, v in (metadata.get("labels") or {}).items() if k == FUNCTION_LABEL},
            "ownerReferences": owners,
        },
        "spec": {
            "nodeName": spec.get("nodeName"),
            "schedulerName": spec.get("schedulerName"),
            "overhead": spec.get("overhead"),
            "containers": [_slim_container(c) for c in spec.get("containers") or ()],
            "initContainers": [_slim_container(c) for c in spec.get("initContainers") or ()],
        },
        "status": {
            "phase": status.get("phase"),
            "conditions": [
                {"type": c.get("type"), "status": c.get("status"), "lastTransitionTime": c.get("lastTransitionTime")}
                for c in status.get("conditions") or ()
                if c.get("type") in ("PodScheduled", "Ready")
            ],
        },
    }


def _slim_container(container: Mapping[str, Any]) -> dict[str, Any]:
    slim = {
        "image": container.get("image"),
        "restartPolicy": container.get("restartPolicy"),
        "resources": {"requests": (container.get("resources") or {}).get("requests")},
    }
    return {k: v for k, v in slim.items() if v is not None}


def slim_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Name and spec: managed fields and annotations stay behind."""
    keep = ("name", "namespace", "uid", "generation", "creationTimestamp")
    metadata = policy.get("metadata") or {}
    return {"metadata": {k: metadata[k] for k in keep if k in metadata}, "spec": policy.get("spec") or {}}
