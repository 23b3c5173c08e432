"""Which nodes can take a pod now: labels, taints and room, as kube-scheduler's own filters would say for the pods that are understood."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import orjson

from tiphys_extender.placement.decide import World
from tiphys_extender.placement.objects import MOST_NODES
from tiphys_models.base.arrays import BoolArray, IntArray
from tiphys_models.base.facts import NodeFacts, node_facts
from tiphys_models.kube.guard import attempted
from tiphys_models.kube.objects import Objects
from tiphys_models.placement.table import UNKNOWN, NodeTable

_MASKS = 256
_MOST_PODS = 2**31
_REPELS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a node demands of pods, beyond room."""

    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]
    """(key, value, effect) of those that keep pods away."""
    schedulable: bool
    """Ready, and not cordoned."""
    pods: int
    """How many pods it takes."""


def node_shape(obj: Mapping[str, Any], facts: NodeFacts) -> NodeShape:
    """The shape of a node as the API server sends it."""
    taints = (obj.get("spec") or {}).get("taints") or ()
    allocatable = (obj.get("status") or {}).get("allocatable") or {}
    return NodeShape(
        labels=dict((obj.get("metadata") or {}).get("labels") or {}),
        taints=tuple((t.get("key") or "", t.get("value") or "", t["effect"]) for t in taints if t.get("effect") in _REPELS),
        schedulable=facts.schedulable,
        pods=int(allocatable.get("pods", _MOST_PODS)),
    )


class NodeShapes:
    """Shapes of all nodes, and which of them suit a pod by labels and taints: kept until any shape changes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._shapes: dict[str, NodeShape] = {}
        self._masks: OrderedDict[bytes, tuple[BoolArray, IntArray]] = OrderedDict()

    def put(self, name: str, shape: NodeShape) -> None:
        """A node has this shape from now on."""
        self._shapes[name] = shape
        self._masks.clear()

    def drop(self, name: str) -> None:
        """A node is gone."""
        self._shapes.pop(name, None)
        self._masks.clear()

    def that_take(self, needs: bytes, cpu_milli: int, memory_bytes: int) -> IntArray:
        """Rows of the nodes that suit these needs and have room, reservations counted."""
        nodes = self._nodes
        suits, most_pods = self._suiting(needs)
        room = suits & (nodes.pods < most_pods)
        # who asks for nothing fits beside whatever is there, as in kube-scheduler
        if cpu_milli:
            room &= nodes.cores * 1000 - nodes.cpu_requested_milli >= cpu_milli
        if memory_bytes:
            room &= nodes.memory_capacity - nodes.memory_requested >= memory_bytes
        return np.flatnonzero(room)

    def _suiting(self, needs: bytes) -> tuple[BoolArray, IntArray]:
        found = self._masks.get(needs)
        if found is not None and len(found[0]) == self._nodes.capacity:
            self._masks.move_to_end(needs)
            return found
        selector, terms, tolerations = orjson.loads(needs)
        suits, most_pods = np.zeros(self._nodes.capacity, np.bool_), np.zeros(self._nodes.capacity, np.int64)
        for name, shape in self._shapes.items():
            if (row := self._nodes.row_of[name]) != UNKNOWN:
                suits[row] = shape.schedulable and _is_chosen(name, shape, selector, terms) and _is_tolerated(shape, tolerations)
                most_pods[row] = min(shape.pods, _MOST_PODS)
        self._masks[needs] = suits, most_pods
        if len(self._masks) > _MASKS:
            self._masks.popitem(last=False)
        return suits, most_pods


class _SeenNode(NamedTuple):
    facts: NodeFacts
    shape: NodeShape | None
    """None if it cannot be read: no held pod is expected to fit there."""


def shaped_nodes(world: World, shapes: NodeShapes) -> Objects[_SeenNode]:
    """Nodes into the placement state and, with what the filter reads of them, into the shapes."""

    def read(obj: dict[str, Any]) -> _SeenNode:
        facts = node_facts(obj)
        return _SeenNode(facts, attempted(lambda: node_shape(obj, facts))[0])

    def changed(former: _SeenNode | None, now: _SeenNode | None) -> None:
        if now is None:
            if former is not None:
                world.state.drop_node(former.facts.name)
                shapes.drop(former.facts.name)
            return
        if former is None or former.facts != now.facts:
            world.state.put_node(now.facts)
        if now.shape is None:
            shapes.drop(now.facts.name)
        elif former is None or former.shape != now.shape:
            shapes.put(now.facts.name, now.shape)

    return Objects(read, changed, limits=MOST_NODES)


def _is_chosen(name: str, shape: NodeShape, selector: Mapping[str, str], terms: Sequence[Mapping[str, Any]] | None) -> bool:
    if any(shape.labels.get(key) != value for key, value in selector.items()):
        return False
    return terms is None or any(_meets(name, shape, term) for term in terms)


def _meets(name: str, shape: NodeShape, term: Mapping[str, Any]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term selects nothing
    return all(_holds(line, shape.labels) for line in expressions) and all(_holds(line, {"metadata.name": name}) for line in fields)


def _holds(line: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(line["key"])
    wanted: Sequence[str] = line.get("values") or ()
    match line.get("operator"):
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not _is_whole(value) or len(wanted) != 1 or not _is_whole(wanted[0]):
                return False
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
        case _:
            return False


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 20


def _is_tolerated(shape: NodeShape, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in shape.taints)


def _tolerates(toleration: Mapping[str, Any], taint: tuple[str, str, str]) -> bool:
    key, value, effect = taint
    if toleration.get("effect") not in (None, "", effect):
        return False
    operator = toleration.get("operator") or "Equal"
    wanted = toleration.get("key") or ""
    if operator == "Exists":
        return wanted in ("", key)
    return operator == "Equal" and wanted == key and (toleration.get("value") or "") == value
