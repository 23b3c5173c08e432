"""The same cluster a second time: slow, naive, and fed to the very objects that serve.

Nothing is shared with the compiled simulator but its constants and the scenario: nodes are `Invoker`s, and what a policy sees is a
`PlacementState` that learns of completions when a sample is published. Tests hold the two simulators to each other call by call;
it is also the place to read first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.rank import order, tie_breakers
from tiphys_models.placement.rules import Hashing, WarmFirst
from tiphys_models.placement.schema import COLUMN, NODE_READINGS
from tiphys_models.placement.sim.episode import CallRecords, node_name
from tiphys_models.placement.sim.functions import FUNCTIONS, MIB, FunctionModel
from tiphys_models.placement.sim.invoker import CallStep, Event, Invoker, InvokerRules, Usage
from tiphys_models.placement.sim.observe import CPU_TICK_S, LOAD_TICK
from tiphys_models.placement.sim.scenario import FaasScenario, profiled_functions
from tiphys_models.placement.sim.workloads import CallWorkload, namespace_of, uid_of
from tiphys_models.placement.state import PlacementState, StateLimits


@dataclass(slots=True)
class _Node:
    name: str
    cores: float
    capacity: float
    invoker: Invoker
    sampled: Usage
    """What it had done when it was last sampled."""
    alive: bool = True


@dataclass(slots=True)
class _Sample:
    at_s: float
    names: list[str]
    readings: FloatArray
    idle: dict[str, dict[str, float]]


class Reference:
    """One workload, one policy object, one scenario.

    `kubernetes`: as on a live control plane, a node is a candidate only while the memory of its calls leaves room for another
    one, calls without a candidate wait until there is one, and completions are seen at once; only readings are sampled.
    """

    def __init__(self, workload: CallWorkload, policy: PlacementPolicy, scenario: FaasScenario, *, kubernetes: bool = False) -> None:
        self.workload, self.policy, self.scenario, self.kubernetes = workload, policy, scenario, kubernetes
        self.fallback = WarmFirst()
        self.models = [_with_start_cost(function, scenario.start_cost) for function in FUNCTIONS]
        sizes = zip(scenario.cores(), scenario.capacity_bytes(), strict=True)
        self.now_s = 0.0
        self.nodes = [self._empty(node_name(i), float(cores), float(memory)) for i, (cores, memory) in enumerate(sizes)]
        self.state = PlacementState(StateLimits(reservation_ttl_s=math.inf))
        self.namespace = namespace_of(workload.name, workload.split, workload.seed)
        self.functions = [f"{self.namespace}/{f.name}" for f in FUNCTIONS]
        calls = len(workload)
        self.node_of = np.full(calls, -1, np.int64)
        self.start_s, self.finish_s = np.full(calls, np.nan), np.full(calls, np.nan)
        self.cold = np.zeros(calls, np.bool_)
        self.unseen: list[int] = []  # finished, and nobody has said so yet
        self.waiting: list[int] = []  # for a candidate

    def run(self) -> CallRecords:
        """Start to last completion."""
        for node in self.nodes:
            self.state.put_node(self._node_facts(node))
        self._introduce_functions()
        self._publish(self._sample())
        samples: list[_Sample] = []
        arrivals = list(range(len(self.workload)))
        events = sorted(self.scenario.events, key=lambda e: e.at_s)
        taken = 1
        while arrivals or events or self.waiting:
            take_s = taken * self.scenario.period_s
            show_s = samples[0].at_s + self.scenario.delay_s if samples else math.inf
            arrive_s = self.workload.arrival_s[arrivals[0]] if arrivals else math.inf
            event_s = events[0].at_s if events else math.inf
            change_s = min(node.invoker.next_event_s() for node in self._alive()) if self.waiting else math.inf
            until = min(take_s, show_s, arrive_s, event_s, change_s)
            self._advance(until)
            if change_s <= until:
                again, self.waiting = self.waiting, []
                for k in again:
                    self._place(k)
            elif take_s <= until:
                samples.append(self._sample())
                taken += 1
            elif show_s <= until:
                self._publish(samples.pop(0))
            elif event_s <= until:
                event = events.pop(0)
                self._join(event.node) if event.joins else self._lose(event.node)
            else:
                self._place(arrivals.pop(0))
        self._advance(math.inf)
        return CallRecords(self.workload.arrival_s, self.workload.function, self.node_of, self.start_s, self.finish_s, self.cold)

    # ---- what policies see --------------------------------------------------------------------------------------------

    def _introduce_functions(self) -> None:
        profiles, profiled = {}, profiled_functions(self.scenario, self.workload)
        for name, f, described in zip(self.functions, self.models, profiled, strict=True):
            start = PodFacts(f"start-{name}", self.namespace, name, name, "", "tiphys", 0, 0, True, False, (), 0.0, f.init_s)
            self.state.put_pod(start, 0.0)
            if described:
                profiles[name] = FunctionProfile(f.warm_s, f.cold_s, f.warm_work_core_s, f.cold_work_core_s, float(f.parallelism))
        self.state.put_profiles(profiles)

    def _node_facts(self, node: _Node) -> NodeFacts:
        return NodeFacts(node.name, round(node.cores * 1000), round(node.capacity), True, "", ())

    def _sample(self) -> _Sample:
        window, alive = self.scenario.period_s, [n for n in self.nodes if n.alive]
        readings = np.zeros((len(alive), len(NODE_READINGS)), np.float32)
        idle: dict[str, dict[str, float]] = {name: {n.name: 0.0 for n in alive} for name in self.functions}
        for row, node in enumerate(alive):
            usage, before = node.invoker.usage(), node.sampled
            node.sampled = usage
            used = math.floor((usage.busy_core_s - before.busy_core_s) / CPU_TICK_S + 0.5) * CPU_TICK_S / window
            reads, writes = usage.reads - before.reads, usage.writes - before.writes
            received, sent = usage.received_bytes - before.received_bytes, usage.sent_bytes - before.sent_bytes
            disk = (reads + writes) / window
            waiting = min(disk * 2e-4, max(node.cores - used, 0.0))
            pool = usage.memory_bytes
            values = {
                "cpu_user": used * 0.94, "cpu_kernel": used * 0.06, "cpu_idle": max(node.cores - used - waiting, 0.0),
                "cpu_iowait": waiting, "cpu_softirq": (received + sent) * 1e-9 / window,
                "ctx_switches": (usage.switches - before.switches) / window,
                "cpu_load_avg": math.floor(node.invoker.load1 / LOAD_TICK + 0.5) * LOAD_TICK, "memory_free": node.capacity - pool,
                "memory_buffers": 64 * 2**20,
                "memory_cached": pool * 0.25 + 128 * 2**10, "disk_read": reads / window, "disk_read_merged": reads * 0.2 / window,
                "disk_read_time": reads * 2e-4 / window, "disk_write": writes / window,
                "disk_write_merged": writes * 0.4 / window, "disk_write_time": writes * 4e-4 / window,
                "net_recv": received / window, "net_sent": sent / window,
            }  # fmt: skip
            for name, value in values.items():
                readings[row, COLUMN[name]] = value
            for name, count in node.invoker.idle_instances().items():
                idle[f"{self.namespace}/{name}"][node.name] = float(count)
        return _Sample(self.now_s, [n.name for n in alive], readings, idle)

    def _publish(self, sample: _Sample) -> None:
        self.state.put_idle(sample.idle, sample.at_s)
        self.state.put_readings(sample.names, sample.readings, np.full(len(sample.names), sample.at_s))
        self._tell_finished(sample.at_s)

    def _tell_finished(self, until_s: float) -> None:
        for k in [k for k in self.unseen if self.finish_s[k] <= until_s]:
            self.state.ran(uid_of(k), float(self.finish_s[k]))
            self.unseen.remove(k)

    def _place(self, k: int) -> None:
        function = int(self.workload.function[k])
        name, memory, state = self.functions[function], self._memory(k), self.state
        if self.kubernetes:
            self._tell_finished(self.now_s)
        nodes = [n for n in self._alive() if not self.kubernetes or self._asked_for(n) + memory <= n.capacity]
        if not nodes:
            self.waiting.append(k)
            return
        request = PlacementRequest(uid_of(k), self.namespace, name, 0, int(memory))
        rows = state.nodes.rows([n.name for n in nodes])
        state.tick(self.now_s)
        view = state.view(request, rows)
        if isinstance(self.policy, Hashing):  # its balancer knows of completions at once
            pending = np.array([self._asked_for(n) for n in nodes])
            view = replace(view, available_memory_bytes=view.memory_capacity_bytes - pending)
        policy = self._judge(name)
        scores = policy.score(view, state.memory())
        best = order(scores, tie_breakers(request.uid, view.name_hash), policy.epsilon)[0]
        node = nodes[int(best)]
        state.decided(request, node.name, self.now_s)
        state.bound(
            PodFacts(request.uid, self.namespace, "", name, node.name, "tiphys", 0, int(memory), False, False, (), None, None), self.now_s
        )
        self.node_of[k] = self.nodes.index(node)
        self._note(node.invoker.submit(str(k), self.models[function], self.now_s, float(self.workload.noise[k])))

    def _judge(self, function: str) -> PlacementPolicy:
        """The policy, or the fallback where the extender would turn to it."""
        policy = self.policy
        left_out = isinstance(policy, FaaSRank) and policy.reads_profiles and self.state.profile_gap(function) is not None
        return self.fallback if left_out else policy

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _alive(self) -> list[_Node]:
        return [n for n in self.nodes if n.alive]

    def _empty(self, name: str, cores: float, capacity: float) -> _Node:
        scenario = self.scenario
        rules = InvokerRules(scenario.keep_alive_s, scenario.reuse, scenario.capped, scenario.interference)
        invoker = Invoker(cores, capacity, self.now_s, rules)
        return _Node(name, cores, capacity, invoker, invoker.usage())

    def _memory(self, k: int) -> float:
        return self.models[int(self.workload.function[k])].memory_mib * float(MIB)

    def _asked_for(self, node: _Node) -> float:
        """Memory of all calls on the node, those that wait included."""
        return sum(self._memory(int(call)) for call in node.invoker.unfinished)

    def _advance(self, until_s: float) -> None:
        for node in self._alive():
            self._note(node.invoker.advance(until_s))
        if math.isfinite(until_s):
            self.now_s = until_s

    def _note(self, events: list[Event]) -> None:
        for event in events:
            k = int(event.call)
            self.start_s[k], self.cold[k] = event.begun_s, event.cold
            if event.step is CallStep.DONE:
                self.finish_s[k] = event.at_s
                self.unseen.append(k)

    def _lose(self, index: int) -> None:
        node = self.nodes[index]
        again = sorted(map(int, node.invoker.unfinished))
        self.nodes[index] = self._empty(node.name, node.cores, node.capacity)
        self.nodes[index].alive = False
        self.state.drop_node(node.name)
        for k in again:
            self.state.finished(uid_of(k))
        for k in again:
            self._place(k)

    def _join(self, index: int) -> None:
        old = self.nodes[index]
        node = self.nodes[index] = self._empty(old.name, old.cores, old.capacity)
        self.state.put_node(self._node_facts(node))


def _with_start_cost(function: FunctionModel, cost: float) -> FunctionModel:
    """Its start, and what a cold execution takes longer than a warm one, times `cost`."""
    slower_s = function.cold_s - function.init_s - function.warm_s
    init_s = function.init_s * cost
    return function if cost == 1.0 else replace(function, init_s=init_s, cold_s=init_s + function.warm_s + slower_s * cost)
