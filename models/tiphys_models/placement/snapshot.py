"""A cluster in a file: nodes, pods, policies and readings, enough for the extender to answer without an API server.

JSON lines: a header, then one object a line. Written by `tiphys snapshot`, made up by benchmarks and contract tests, sent in by
users who want help. It holds no environment, no secrets and no annotations: objects are cut down to what `node_facts` and
`pod_facts` read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.facts import FUNCTION_LABEL, INSTANCE_TYPE_LABEL
from tiphys_models.placement.calls import PROFILE_QUANTITIES, FunctionProfile
from tiphys_models.placement.gauges import ReadingTable
from tiphys_models.placement.schema import NODE_READINGS, SCHEMA

FORMAT = "tiphys-snapshot/1"
_KINDS = ("node", "pod", "policy", "readings", "idle", "profile")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parts, as JSON objects; `readings[node]` has 21 numbers or nulls, `idle[function][node]` a count."""

    taken_at_s: float
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    policies: list[dict[str, Any]]
    readings: dict[str, list[float | None]] = field(default_factory=dict)
    idle: dict[str, dict[str, float]] = field(default_factory=dict)
    profiles: dict[str, FunctionProfile] = field(default_factory=dict)


def records(path: Path) -> Iterator[tuple[str, Any]]:
    """(kind, content) of each line but the first, one in memory at a time; InvalidInput says what is wrong and where."""
    try:
        with path.open("rb") as file:
            _check_header(_line(file.readline(), path, 1), path)
            for number, raw in enumerate(file, start=2):
                line = _line(raw, path, number)
                if len(line) != 1 or (kind := next(iter(line))) not in _KINDS:
                    raise InvalidInput(f"snapshot {path}, line {number}: expected one of {', '.join(_KINDS)}")
                if kind == "readings" and len(line[kind].get("values", ())) != len(NODE_READINGS):
                    raise InvalidInput(f"snapshot {path}, line {number}: a node has not {len(NODE_READINGS)} readings")
                if kind == "profile" and not _is_profile(line[kind]):
                    raise InvalidInput(f"snapshot {path}, line {number}: a profile has not {', '.join(PROFILE_QUANTITIES)}")
                yield kind, line[kind]
    except OSError as error:
        raise InvalidInput(f"cannot read snapshot {path}: {error.strerror}") from error


def read_snapshot(path: Path) -> Snapshot:
    """The whole file at once."""
    snapshot = Snapshot(taken_at_s(path), [], [], [])
    for kind, content in records(path):
        match kind:
            case "node":
                snapshot.nodes.append(content)
            case "pod":
                snapshot.pods.append(content)
            case "policy":
                snapshot.policies.append(content)
            case "readings":
                snapshot.readings[content["node"]] = content["values"]
            case "profile":
                snapshot.profiles[content["function"]] = profile_from(content)
            case _:
                snapshot.idle[content["function"]] = content["nodes"]
    return snapshot


def profile_from(content: Mapping[str, Any]) -> FunctionProfile:
    """The profile of one record."""
    return FunctionProfile(*(float(content[quantity]) for quantity in PROFILE_QUANTITIES))


def taken_at_s(path: Path) -> float:
    """When it was taken, seconds since the epoch."""
    try:
        with path.open("rb") as file:
            header = _line(file.readline(), path, 1)
    except OSError as error:
        raise InvalidInput(f"cannot read snapshot {path}: {error.strerror}") from error
    _check_header(header, path)
    return float(header["taken_at_s"])


def _is_profile(content: Mapping[str, Any]) -> bool:
    return "function" in content and all(isinstance(content.get(quantity), int | float) for quantity in PROFILE_QUANTITIES)


def _line(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        line = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"snapshot {path}, line {number} is not JSON: {error}") from error
    if not isinstance(line, dict):
        raise InvalidInput(f"snapshot {path}, line {number} is no JSON object")
    return line


def _check_header(header: dict[str, Any], path: Path) -> None:
    if header.get("format") != FORMAT:
        raise InvalidInput(f"snapshot {path} has no format {FORMAT!r}: write it with `tiphys snapshot`")
    if header.get("feature_schema") != SCHEMA:
        raise InvalidInput(f"snapshot {path} holds readings of {header.get('feature_schema')!r}, this release reads {SCHEMA!r}")
    if not isinstance(header.get("taken_at_s"), int | float):
        raise InvalidInput(f"snapshot {path} does not say when it was taken")


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot to a file, objects cut down, one a line: a reader never needs the whole cluster in memory."""
    header = {"format": FORMAT, "feature_schema": SCHEMA, "taken_at_s": snapshot.taken_at_s}
    lines: Iterable[dict[str, Any]] = chain(
        [header],
        ({"node": slim_node(node)} for node in snapshot.nodes),
        ({"pod": slim_pod(pod)} for pod in snapshot.pods),
        ({"policy": slim_policy(policy)} for policy in snapshot.policies),
        ({"readings": {"node": node, "values": values}} for node, values in snapshot.readings.items()),
        ({"idle": {"function": function, "nodes": nodes}} for function, nodes in snapshot.idle.items()),
        (
            {"profile": {"function": name, **dict(zip(PROFILE_QUANTITIES, p.as_row(), strict=True))}}
            for name, p in snapshot.profiles.items()
        ),
    )
    with path.open("wb") as file:
        for line in lines:
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


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
