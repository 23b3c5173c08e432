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
from tiphys_models.placement.candidates import CandidateView, PlacementRequest
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.protocol import PlacementPolicy, patient
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
from tiphys_models.placement.waiting import LONGEST_S, LOOK_AGAIN_S


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

    def __init__(
        self,
        workload: CallWorkload,
        policy: PlacementPolicy,
        scenario: FaasScenario,
        *,
        kubernetes: bool = False,
        core_seconds: bool = True,
    ) -> None:
        self.workload, self.policy, self.scenario, self.kubernetes = workload, policy, scenario, kubernetes
        self.core_seconds = core_seconds
        """Whether the processor time of a call is seen when it ends."""
        self.fallback = WarmFirst()
        self.models = [_with_start_cost(function, scenario.start_cost) for function in FUNCTIONS]
        sizes = zip(scenario.cores(), scenario.capacity_bytes(), strict=True)
        self.now_s = 0.0
        self.nodes = [self._empty(node_name(i), float(cores), float(memory)) for i, (cores, memory) in enumerate(sizes)]
        keep_alive_s = scenario.keep_alive_s if scenario.reuse else 0.0
        self.state = PlacementState(StateLimits(reservation_ttl_s=math.inf, keep_alive_s=keep_alive_s))
        self.namespace = namespace_of(workload.name, workload.split, workload.seed)
        self.functions = [f"{self.namespace}/{f.name}" for f in FUNCTIONS]
        calls = len(workload)
        self.node_of = np.full(calls, -1, np.int64)
        self.placed_s, self.ready_s = np.full(calls, np.nan), np.full(calls, np.nan)
        self.start_s, self.finish_s = np.full(calls, np.nan), np.full(calls, np.nan)
        self.held_s = np.full(calls, np.nan)  # when it was first told "not yet"
        self.cold = np.zeros(calls, np.bool_)
        self.told_to_wait = False  # whether that was the answer to the last question
        self.unseen: list[int] = []  # finished, and nobody has said so yet
        self.waiting: list[int] = []  # for a candidate, or for an instance

    def run(self) -> CallRecords:
        """Start to last completion."""
        for node in self.nodes:
            self.state.put_node(self._node_facts(node))
        self._introduce_functions()
        self._publish(self._sample())
        (self._run_pods if self.kubernetes else self._run_calls)()
        return CallRecords(self.workload.arrival_s, self.workload.function, self.node_of, self.start_s, self.finish_s, self.cold)

    def _run_calls(self) -> None:
        samples: list[_Sample] = []
        arrivals = list(range(len(self.workload)))
        events = sorted(self.scenario.events, key=lambda e: e.at_s)
        taken = 1
        while arrivals or events:
            take_s = taken * self.scenario.period_s
            show_s = samples[0].at_s + self.scenario.delay_s if samples else math.inf
            arrive_s = self.workload.arrival_s[arrivals[0]] if arrivals else math.inf
            event_s = events[0].at_s if events else math.inf
            until = min(take_s, show_s, arrive_s, event_s)
            self._advance(until)
            if take_s <= until:
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

    def _run_pods(self) -> None:
        """Ends are seen at once; whoever waits is asked again at ends, at readings and by a clock."""
        samples: list[_Sample] = []
        arrivals = list(range(len(self.workload)))
        events = sorted(self.scenario.events, key=lambda e: e.at_s)
        taken, looked_s = 1, -math.inf
        while arrivals or events or self.waiting or any(node.invoker.unfinished for node in self.nodes):
            take_s = taken * self.scenario.period_s
            show_s = samples[0].at_s + self.scenario.delay_s if samples else math.inf
            arrive_s = self.workload.arrival_s[arrivals[0]] if arrivals else math.inf
            look_s = looked_s + LOOK_AGAIN_S if self.waiting else math.inf
            change_s = min(node.invoker.next_event_s() for node in self.nodes)
            event_s = events[0].at_s if events else math.inf
            until = min(take_s, show_s, arrive_s, event_s, look_s, change_s)
            self._advance(until)
            look = self._tell_finished(until) or look_s <= until
            if event_s <= until:
                event = events.pop(0)
                self._join(event.node) if event.joins else self._lose(event.node)
                look = True
            if take_s <= until:
                samples.append(self._sample())
                taken += 1
            if samples and samples[0].at_s + self.scenario.delay_s <= until:
                self._publish(samples.pop(0))
                look = True
            if self.waiting and look:
                self._look()
                looked_s = until
            if arrive_s <= until:
                k = arrivals.pop(0)
                before = [i for i in self._same(k, self.waiting) if not math.isnan(self.held_s[i])]
                if not self._place(k, len(before)):
                    looked_s = looked_s if self.waiting else until
                    self.waiting.append(k)

    def _look(self) -> None:
        """Everybody who waits is asked again, oldest first."""
        queue, self.waiting = self.waiting, []
        held: list[int] = []
        for k in queue:
            if not self._place(k, len(self._same(k, held))):
                self.waiting.append(k)
                if self.told_to_wait:
                    held.append(k)

    def _same(self, k: int, others: list[int]) -> list[int]:
        return [i for i in others if self.workload.function[i] == self.workload.function[k]]

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

    def _tell_finished(self, until_s: float) -> bool:
        """Whether there was anything to tell."""
        told = [k for k in self.unseen if self.finish_s[k] <= until_s]
        for k in told:
            model = self.models[int(self.workload.function[k])]
            work = (model.cold_work_core_s if self.cold[k] else model.warm_work_core_s) * float(self.workload.noise[k])
            end = CallEnd(float(self.ready_s[k] - self.placed_s[k]), work if self.core_seconds else math.nan)
            self.state.ran(uid_of(k), float(self.finish_s[k]), end)
            self.unseen.remove(k)
        return bool(told)

    def _place(self, k: int, before: int = 0) -> bool:
        """Whether the call has gone to a node; `before` calls of its function wait for an instance in front of it."""
        function = int(self.workload.function[k])
        name, memory, state = self.functions[function], self._memory(k), self.state
        self.told_to_wait = False
        nodes = [n for n in self._alive() if not self.kubernetes or self._asked_for(n) + memory <= n.capacity]
        if not nodes:
            return False
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
        if self.kubernetes and self._not_yet(k, policy, view, scores, int(best), before):
            return False
        node = nodes[int(best)]
        state.decided(request, node.name, self.now_s)
        state.bound(
            PodFacts(request.uid, self.namespace, "", name, node.name, "tiphys", 0, int(memory), False, False, (), None, None), self.now_s
        )
        self.node_of[k] = self.nodes.index(node)
        self.placed_s[k] = self.now_s
        self._note(node.invoker.submit(str(k), self.models[function], self.now_s, float(self.workload.noise[k])))
        return True

    def _not_yet(self, k: int, policy: PlacementPolicy, view: CandidateView, scores: FloatArray, best: int, before: int) -> bool:
        able = patient(policy)
        if able is None or self.now_s - self.held_s[k] >= LONGEST_S:
            return False
        self.told_to_wait = able.not_yet(view, scores, best, before) is not None
        if self.told_to_wait and math.isnan(self.held_s[k]):
            self.held_s[k] = self.now_s
        return self.told_to_wait

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
            if event.step is CallStep.READY:
                self.ready_s[k] = event.at_s
            else:
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
            if not self._place(k):
                self.waiting.append(k)

    def _join(self, index: int) -> None:
        old = self.nodes[index]
        node = self.nodes[index] = self._empty(old.name, old.cores, old.capacity)
        self.state.put_node(self._node_facts(node))


def _with_start_cost(function: FunctionModel, cost: float) -> FunctionModel:
    """Its start, and what a cold execution takes longer than a warm one, times `cost`."""
    slower_s = function.cold_s - function.init_s - function.warm_s
    init_s = function.init_s * cost
    return function if cost == 1.0 else replace(function, init_s=init_s, cold_s=init_s + function.warm_s + slower_s * cost)
