"""Builders of small valid objects; tests name only what matters to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.candidates import CandidateView, PlacementRequest
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.state import PlacementState

GIB = 2**30
MIB = 2**20


def node(name: str = "n0", **changes: Any) -> NodeFacts:
    facts: dict[str, Any] = {
        "cpu_milli": 8000,
        "memory_bytes": 16 * GIB,
        "schedulable": True,
        "instance_type": "B4ms",
        "images": (),
    }
    return NodeFacts(name=name, **(facts | changes))


def pod(uid: str = "u0", **changes: Any) -> PodFacts:
    facts: dict[str, Any] = {
        "namespace": "default",
        "name": uid,
        "function": "default/f",
        "node": "",
        "scheduler_name": "tiphys",
        "cpu_milli": 100,
        "memory_bytes": 256 * MIB,
        "finished": False,
        "from_daemon_set": False,
        "images": (),
        "scheduled_s": None,
        "ready_s": None,
    }
    return PodFacts(uid=uid, **(facts | changes))


def request(uid: str = "u0", **changes: Any) -> PlacementRequest:
    facts: dict[str, Any] = {"namespace": "default", "function": "default/f", "cpu_milli": 100, "memory_bytes": 256 * MIB, "images": ()}
    return PlacementRequest(uid=uid, **(facts | changes))


def state(nodes: int = 3, **changes: Any) -> PlacementState:
    """A state with nodes n0, n1, ... and nothing on them."""
    filled = PlacementState()
    for index in range(nodes):
        filled.put_node(node(f"n{index}", **changes))
    return filled


def view(filled: PlacementState, wanted: PlacementRequest | None = None) -> CandidateView:
    """All nodes of a state as candidates, in order of their names."""
    names = sorted(filled.nodes.row_of)
    return filled.view(wanted or request(), filled.nodes.rows(names))


def read(filled: PlacementState, at_s: float = 0.0, **columns: dict[str, float]) -> None:
    """Put readings of 1.0 everywhere but what is named: read(state, cpu_load_avg={"n0": 7})."""
    names = sorted(filled.nodes.row_of)
    values = np.ones((len(names), len(NODE_READINGS)), np.float32)
    for column, by_node in columns.items():
        index = [f.name for f in NODE_READINGS].index(column)
        for name, value in by_node.items():
            values[names.index(name), index] = value
    filled.put_readings(names, values, np.full(len(names), at_s))


def policy_object(name: str = "p", namespace: str = "default", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    """A SchedulingPolicy as the API server sends it."""
    return {
        "apiVersion": "tiphys.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": created},
        "spec": spec,
    }
