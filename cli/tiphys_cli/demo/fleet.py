"""All simulated nodes: their runtimes, and the readings that the exporter shows of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiphys_cli.cluster.counters import NodeCounters, NodeLoad
from tiphys_cli.cluster.nodes import SimulatedNode
from tiphys_cli.demo.functions import FUNCTIONS, MIB, FunctionProfile
from tiphys_cli.demo.runtime import Event, NodeRuntime, Usage

# What a call moves besides computing: enough for the disk and network readings to follow the load.
_READ_REQUEST_BYTES = 64 * 1024
_RECEIVED_BYTES_PER_CALL = 0.25 * MIB
_SENT_BYTES_PER_CALL = 0.1 * MIB
_SHORTEST_SPAN_S = 1e-3


@dataclass(slots=True)
class _Node:
    spec: SimulatedNode
    namespace: str
    runtime: NodeRuntime
    counters: NodeCounters
    shown: Usage
    shown_s: float


class Fleet:
    """Runtimes by node name. Not safe from several threads; the counters are."""

    def __init__(self, nodes: Mapping[str, Iterable[SimulatedNode]], now_s: float) -> None:
        """`nodes`: the machines by the namespace whose functions run on them."""
        self._nodes: dict[str, _Node] = {}
        for namespace, specs in nodes.items():
            for spec in specs:
                runtime = _runtime(spec, now_s)
                counters = NodeCounters(spec.machine.cores, spec.machine.memory_bytes)
                self._nodes[spec.name] = _Node(spec, namespace, runtime, counters, runtime.usage(), now_s)
        self._next_s = {name: node.runtime.next_event_s() for name, node in self._nodes.items()}
        self.publish(now_s)

    @property
    def counters(self) -> dict[str, NodeCounters]:
        """For the exporter."""
        return {name: node.counters for name, node in self._nodes.items()}

    @property
    def specs(self) -> dict[str, SimulatedNode]:
        """What each node is made of."""
        return {name: node.spec for name, node in self._nodes.items()}

    @property
    def next_event_s(self) -> float:
        """When something changes by itself on any node."""
        return min(self._next_s.values())

    def reset(self, now_s: float) -> None:
        """Empty every node: no container, no call. Counters go on, as a machine's do."""
        self.publish(now_s)
        for name, node in self._nodes.items():
            node.runtime = _runtime(node.spec, now_s)
            node.shown = node.runtime.usage()
            self._next_s[name] = node.runtime.next_event_s()
            _show_idle(node)

    def has(self, node: str) -> bool:
        """Whether the node is one of ours."""
        return node in self._nodes

    def submit(self, node: str, call: str, function: FunctionProfile, now_s: float) -> list[Event]:
        """A pod runs on a node; returns what happened there until now."""
        return self._after(node, self._nodes[node].runtime.submit(call, function, now_s))

    def cancel(self, node: str, call: str, now_s: float) -> list[Event]:
        """A pod was deleted."""
        return self._after(node, self._nodes[node].runtime.cancel(call, now_s))

    def advance(self, now_s: float) -> list[Event]:
        """Let every node that has something to do catch up; returns what happened."""
        events: list[Event] = []
        for name, at_s in self._next_s.items():
            if at_s <= now_s:
                events += self._after(name, self._nodes[name].runtime.advance(now_s))
        return events

    def publish(self, now_s: float) -> list[Event]:
        """Bring all readings up to now; returns what happened meanwhile."""
        events: list[Event] = []
        for name, node in self._nodes.items():
            events += self._after(name, node.runtime.advance(now_s))
            span_s = now_s - node.shown_s
            usage = node.runtime.usage()
            if span_s >= _SHORTEST_SPAN_S:
                node.counters.advance(span_s, load_between(node.shown, usage, span_s))
                node.shown, node.shown_s = usage, now_s
        return events

    def _after(self, name: str, events: list[Event]) -> list[Event]:
        node = self._nodes[name]
        self._next_s[name] = node.runtime.next_event_s()
        _show_idle(node)
        return events


def load_between(before: Usage, after: Usage, span_s: float) -> NodeLoad:
    """Mean load of a node between two looks at it."""
    finished = (after.finished - before.finished) / span_s
    return NodeLoad(
        busy_cores=(after.busy_core_s - before.busy_core_s) / span_s,
        runnable=(after.runnable_s - before.runnable_s) / span_s,
        memory_used_bytes=after.memory_bytes,
        reads_per_s=(after.started_memory_bytes - before.started_memory_bytes) / _READ_REQUEST_BYTES / span_s,
        writes_per_s=finished,
        receive_bytes_per_s=finished * _RECEIVED_BYTES_PER_CALL,
        transmit_bytes_per_s=finished * _SENT_BYTES_PER_CALL,
    )


def _runtime(spec: SimulatedNode, now_s: float) -> NodeRuntime:
    return NodeRuntime(spec.machine.cores, spec.machine.memory_bytes, now_s)


def _show_idle(node: _Node) -> None:
    """Zeros are said too: a series that just ends would leave the last number standing until it is stale."""
    idle = node.runtime.idle_instances()
    node.counters.set_idle_instances({f"{node.namespace}/{function.name}": idle.get(function.name, 0) for function in FUNCTIONS})
