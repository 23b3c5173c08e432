"""All simulated nodes: their runtimes, and the readings that the exporter shows of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.invoker import Event, Invoker, InvokerRules, Usage
from tiphys_testbed.cluster.counters import SECONDS_PER_READ, NodeCounters, NodeLoad, profile_lines
from tiphys_testbed.cluster.nodes import SimulatedNode
from tiphys_testbed.demo.functions import profile

_SHORTEST_SPAN_S = 1e-3


@dataclass(slots=True)
class _Node:
    spec: SimulatedNode
    namespace: str
    runtime: Invoker
    counters: NodeCounters
    shown: Usage
    shown_s: float


class RuntimeFleet:
    """Runtimes by node name. Not safe from several threads; the counters are."""

    def __init__(
        self,
        nodes: Mapping[str, Iterable[SimulatedNode]],
        now_s: float,
        rules: InvokerRules | None = None,
        functions: Sequence[FunctionModel] = FUNCTIONS,
    ) -> None:
        """`nodes`: the machines by the namespace whose functions run on them."""
        self._rules, self._functions = rules or InvokerRules(), functions
        self._nodes: dict[str, _Node] = {}
        for namespace, specs in nodes.items():
            for spec in specs:
                runtime = self._empty(spec, now_s)
                counters = NodeCounters(spec.machine.cores, spec.machine.memory_bytes)
                self._nodes[spec.name] = _Node(spec, namespace, runtime, counters, runtime.usage(), now_s)
        self._next_s = {name: node.runtime.next_event_s() for name, node in self._nodes.items()}
        self.declare([function.name for function in functions])
        self.publish(now_s)

    def declare(self, names: Collection[str]) -> None:
        """From now on the runtimes say of these functions what their calls are like, and of no others."""
        declared = {function.name: profile(function) for function in self._functions if function.name in names}
        for node in self._nodes.values():
            node.counters.profiles = profile_lines({f"{node.namespace}/{name}": said for name, said in declared.items()})

    @property
    def counters(self) -> dict[str, NodeCounters]:
        """Counters of each node by name, for the exporter."""
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
            node.runtime = self._empty(node.spec, now_s)
            node.shown = node.runtime.usage()
            self._next_s[name] = node.runtime.next_event_s()
            _show_idle(node)

    def has(self, node: str) -> bool:
        """Whether the node is one of ours."""
        return node in self._nodes

    def submit(self, node: str, call: str, function: FunctionModel, now_s: float, noise: float = 1.0) -> list[Event]:
        """A pod runs on a node; returns what happened there until now."""
        return self._after(node, self._nodes[node].runtime.submit(call, function, now_s, noise))

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
                node.counters.advance(span_s, load_between(node.shown, usage, span_s, node.spec.machine.cores))
                node.shown, node.shown_s = usage, now_s
        return events

    def _empty(self, spec: SimulatedNode, now_s: float) -> Invoker:
        return Invoker(spec.machine.cores, spec.machine.memory_bytes, now_s, self._rules)

    def _after(self, name: str, events: list[Event]) -> list[Event]:
        node = self._nodes[name]
        self._next_s[name] = node.runtime.next_event_s()
        _show_idle(node)
        return events


def load_between(before: Usage, after: Usage, span_s: float, cores: int) -> NodeLoad:
    """Mean load of a node between two looks at it."""
    busy = (after.busy_core_s - before.busy_core_s) / span_s
    reads, writes = (after.reads - before.reads) / span_s, (after.writes - before.writes) / span_s
    return NodeLoad(
        busy_cores=busy,
        iowait_cores=min((reads + writes) * SECONDS_PER_READ, max(cores - busy, 0.0)),
        runnable=(after.runnable_s - before.runnable_s) / span_s,
        memory_used_bytes=after.memory_bytes,
        reads_per_s=reads,
        writes_per_s=writes,
        receive_bytes_per_s=(after.received_bytes - before.received_bytes) / span_s,
        transmit_bytes_per_s=(after.sent_bytes - before.sent_bytes) / span_s,
    )


def _show_idle(node: _Node) -> None:
    """Zeros are said too: a series that just ends would leave the last number standing until it is stale."""
    idle = node.runtime.idle_instances()
    node.counters.set_idle_instances({f"{node.namespace}/{function.name}": idle.get(function.name, 0) for function in FUNCTIONS})
