"""Made-up clusters and pods for benchmarks: the same seed gives the same cluster, in a snapshot file or on an API server.

Readings lie where a busy node's would (core-seconds, bytes, operations a second), so that the score network works on numbers
it could meet; nothing here says how well anything is placed.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from tiphys_models.api.base import API_VERSION
from tiphys_models.api.scheduling_policy import KIND
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.snapshot import Snapshot, write_snapshot
from tiphys_models.placement.untrained import write_untrained
from tiphys_testbed.cluster.nodes import SimulatedNode, node_manifest

NAMESPACE = "functions"
MODEL = "untrained"
FUNCTIONS = tuple(f"function-{index:02d}" for index in range(12))
MANY_FUNCTIONS = tuple(f"function-{index:02d}" for index in range(50))
SCHEDULER = "tiphys"
_UID, _NAME, _FUNCTION = "@uid@", "@name@", "@function@"
_NAMES_MARK = b'"NodeNames":null'


@dataclass(frozen=True, slots=True)
class Cell:
    """One made-up cluster: its nodes, and the number of pods on them."""

    nodes: tuple[SimulatedNode, ...]
    pods: int
    seed: int
    functions: tuple[str, ...] = FUNCTIONS


def policy_object(mode: str = "Active", policy: str = "faasrank", namespace: str = NAMESPACE, model: str = MODEL) -> dict[str, Any]:
    """A SchedulingPolicy for all pods of the namespace, as one would apply it."""
    spec: dict[str, Any] = {"mode": mode, "policy": policy}
    if policy == "faasrank":
        spec["model"] = model
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench", "namespace": namespace}, "spec": spec}


def pod_manifest(name: str, function: str, scheduler: str = SCHEDULER) -> dict[str, Any]:
    """A function's pod as a user would create it; with what the API server adds it weighs about 2.3 kB."""
    environment = [{"name": f"SETTING_{index:02d}", "value": f"value-of-setting-{index:02d}"} for index in range(21)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {FUNCTION_LABEL: function, "app": "bench", "tier": "functions"}},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/functions/{function}:1.0",
                    "env": environment,
                    "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
                }
            ],
        },
    }


def snapshot_of(cell: Cell, taken_at_s: float | None = None, model: str = MODEL, policy: str = "faasrank") -> Snapshot:
    """Nodes with running pods, idle instances, readings and profiles, and one Active policy; `model` is FaaSRank's."""
    rng = np.random.default_rng([cell.seed, len(cell.nodes), cell.pods])
    names = [node.name for node in cell.nodes]
    homes = rng.integers(0, len(names), cell.pods)
    pods = [_running_pod(index, names[home], cell.functions) for index, home in enumerate(homes)]
    active = policy_object(policy=policy, model=model)
    active["metadata"] |= {"uid": "bench", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return Snapshot(
        taken_at_s=time.time() if taken_at_s is None else taken_at_s,
        nodes=[node_manifest(node) for node in cell.nodes],
        pods=pods,
        policies=[active],
        readings=_readings(names, rng),
        idle=_idle(names, rng, cell.functions),
        profiles={f"{NAMESPACE}/{function}": _profile(rng) for function in cell.functions},
    )


def write_inputs(cell: Cell, directory: Path, model: str = MODEL, policy: str = "faasrank") -> tuple[Path, Path, str]:
    """Write snapshot and untrained weights; (snapshot file, models directory, digest of the untrained weights)."""
    snapshot = directory / "snapshot.json"
    write_snapshot(snapshot_of(cell, model=model, policy=policy), snapshot)
    models = directory / "models"
    models.mkdir(exist_ok=True)
    network = write_untrained(models, MODEL, np.random.default_rng([cell.seed, 26]))
    return snapshot, models, network.card.sha256


class PrioritizeBodies:
    """Request bodies as kube-scheduler sends them: a new pod each, functions in turn, a window of nodes that rotates."""

    def __init__(self, names: list[str], size: int, windows: int = 64, functions: tuple[str, ...] = FUNCTIONS) -> None:
        self._functions = functions
        args = {"Pod": admitted_pod(_NAME, _FUNCTION, _UID), "Nodes": None, "NodeNames": None}
        raw = orjson.dumps(args)
        head, tail = raw.split(_NAMES_MARK)
        self._head, self._tail = head.decode(), tail
        starts = range(0, len(names), max(len(names) // windows, 1))
        doubled = names + names
        self._windows = [b'"NodeNames":' + orjson.dumps(doubled[start : start + size]) for start in starts]

    def body(self, index: int) -> bytes:
        """The body of call number `index`; no two have the same pod."""
        pod = str(uuid.UUID(int=(index + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128, version=4))
        head = (
            self._head.replace(_UID, pod)
            .replace(_NAME, f"call-{index:07d}")
            .replace(_FUNCTION, self._functions[index % len(self._functions)])
        )
        return head.encode() + self._windows[index % len(self._windows)] + self._tail


def admitted_pod(name: str, function: str, uid: str) -> dict[str, Any]:
    """The manifest with what admission adds, in the form that kube-scheduler's own copy has."""
    pod = pod_manifest(name, function)
    pod["metadata"] |= {"uid": uid, "resourceVersion": "123456", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    spec = pod["spec"]
    for container in spec["containers"]:
        container |= {
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }
    spec |= {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "tolerations": [
            {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for what in ("not-ready", "unreachable")
        ],
    }
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    return pod


def _running_pod(index: int, node: str, functions: tuple[str, ...]) -> dict[str, Any]:
    pod = admitted_pod(f"running-{index:05d}", functions[index % len(functions)], str(uuid.uuid5(uuid.NAMESPACE_OID, f"running-{index}")))
    pod["spec"]["nodeName"] = node
    times = ("2026-01-01T00:00:01Z", f"2026-01-01T00:00:{2 + index % 3:02d}Z")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at} for kind, at in zip(("PodScheduled", "Ready"), times, strict=True)
    ]
    pod["status"] = {"phase": "Running", "conditions": conditions}
    return pod


_TYPICAL = {"core-seconds/s": 0.5, "1/s": 300.0, "runnable threads": 2.0, "bytes": 2.0**31, "s/s": 0.05, "bytes/s": 2.0**21}


def _readings(names: list[str], rng: np.random.Generator) -> dict[str, list[float | None]]:
    scale = np.array([_TYPICAL[feature.unit] for feature in NODE_READINGS])
    values = rng.gamma(2.0, 0.5, (len(names), len(NODE_READINGS))) * scale
    return {name: [float(f"{value:.6g}") for value in row] for name, row in zip(names, values.tolist(), strict=True)}


def _profile(rng: np.random.Generator) -> FunctionProfile:
    warm_s, parallelism = float(rng.uniform(0.5, 4.0)), float(rng.integers(1, 8))
    return FunctionProfile(warm_s, 2 * warm_s, warm_s * parallelism, 2 * warm_s * parallelism, parallelism)


def _idle(names: list[str], rng: np.random.Generator, functions: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Every one of a dozen functions has idle instances on about one node in ten; of more, each on fewer."""
    share = 0.1 * len(FUNCTIONS) / max(len(FUNCTIONS), len(functions))
    return {
        f"{NAMESPACE}/{function}": {name: float(rng.integers(1, 4)) for name in names if rng.random() < share} for function in functions
    }
