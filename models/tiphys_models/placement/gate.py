"""The scheduling gate of pods that may wait: what admission puts on, and the one patch that takes it off.

A gate has no time limit of its own, so whoever can take it off must be able to do so alone: the extender, which knows what a pod waits
for, and the operator, which only takes off what is older than the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GATE = "tiphys.io/not-yet"
"""The scheduling gate: a pod that carries it is not looked at by any scheduler."""
MAY_WAIT = "tiphys.io/may-wait"
"""The label by which the author of a pod lets it wait; any other value than "true" is a no."""
OPENER_GRACE_S = 3.0
"""How much longer than the bound the second opener leaves a pod to the first one: its clock, its watch and one pause of its process."""


def is_held(pod: Mapping[str, Any]) -> bool:
    """Whether the gate stands, on a pod that nobody has asked to go."""
    return gate_place(pod) is not None and not (pod.get("metadata") or {}).get("deletionTimestamp")


def gate_place(pod: Mapping[str, Any]) -> int | None:
    """Where the gate stands among a pod's gates; others may stand beside it, and are none of our business."""
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return next((place for place, gate in enumerate(gates) if gate.get("name") == GATE), None)


def opening_patch(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that takes the gate off this pod as it was seen, and does nothing else; refused where the pod is another by now."""
    place = gate_place(pod)
    if place is None:
        raise ValueError("the pod carries no gate of ours")
    path = f"/spec/schedulingGates/{place}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "test", "path": f"{path}/name", "value": GATE},
        {"op": "remove", "path": path},
    ]
