"""The same cluster a second time: slow, naive, and fed to the very objects that serve.

Nothing is shared with the compiled simulator but its constants and the scenario. All nodes are moved at every event, and what a
policy sees is a `PlacementState` that learns of completions when a sample is published. Tests hold the two simulators to each
other call by call; it is also the place to read first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tiphys_models.domain.facts import NodeFacts, PodFacts
from tiphys_models.features.arrays import FloatArray
from tiphys_models.features.calls import FunctionProfile
from tiphys_models.features.readings import PlacementRequest
from tiphys_models.features.schema import COLUMN, NODE_READINGS
from tiphys_models.placement.rank import order, tie_breakers
from tiphys_models.placement.state import PlacementState, StateLimits
from tiphys_models.policies.protocol import PlacementPolicy
from tiphys_models.policies.rules import Hashing
from tiphys_models.sim.cluster import Fleet
from tiphys_models.sim.episode import Records, node_name
from tiphys_models.sim.functions import FUNCTIONS
from tiphys_models.sim.observe import CPU_TICK_S, LOAD_TICK
from tiphys_models.sim.scenario import Scenario, make_fleet
from tiphys_models.sim.workloads import Workload, namespace_of, uid_of

_EPSILON_S = 1e-9


@dataclass(slots=True)
class _Container:
    function: int
    call: int
    ready_s: float
    left: float
    since_s: float = 0.0
    started: bool = False


@dataclass(slots=True)
class _Node:
    name: str
    cores: float
    capacity: float
    alive: bool = True
    containers: list[_Container] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    busy: float = 0.0
    load: float = 0.0
    switches: float = 0.0
    reads: float = 0.0
    writes: float = 0.0
    received: float = 0.0
    sent: float = 0.0

    def free(self, fleet: Fleet) -> float:
        return self.capacity - float(sum(fleet.functions["memory"][c.function] for c in self.containers))

    def rates(self, fleet: Fleet) -> dict[int, float]:
        """Weighted max-min, by the textbook: give everybody the same more per weight until somebody has enough."""
        running = [c for c in self.containers if c.started and c.call >= 0]
        cap = {id(c): float(fleet.functions["parallelism"][c.function]) for c in running}
        if fleet.sharing:
            rate = {id(c): min(cap[id(c)], self.cores * fleet.functions["memory"][c.function] / self.capacity) for c in running}
        else:
            rate = dict.fromkeys(cap, 0.0)
            left, open_calls = self.cores, list(running)
            while open_calls and left > 1e-12:
                weight = sum(fleet.functions["memory"][c.function] for c in open_calls)
                level = min(left / weight, *((cap[id(c)] - rate[id(c)]) / fleet.functions["memory"][c.function] for c in open_calls))
                for c in open_calls:
                    rate[id(c)] += level * fleet.functions["memory"][c.function]
                left -= level * weight
                open_calls = [c for c in open_calls if rate[id(c)] < cap[id(c)] - 1e-9]
        slower = 1 / (1 + fleet.interference * max(len(running) - 1, 0))
        return {key: value * slower for key, value in rate.items()}


@dataclass(slots=True)
class _Sample:
    at_s: float
    names: list[str]
    readings: FloatArray
    idle: dict[str, dict[str, float]]


class Reference:
    """One workload, one policy object, one scenario."""

    def __init__(self, workload: Workload, policy: PlacementPolicy, scenario: Scenario) -> None:
        self.workload, self.policy, self.scenario = workload, policy, scenario
        self.fleet = make_fleet(scenario, workload)
        sizes = zip(scenario.cores(), scenario.capacity_bytes(), strict=True)
        self.nodes = [_Node(node_name(i), float(cores), float(memory)) for i, (cores, memory) in enumerate(sizes)]
        self.state = PlacementState(StateLimits(reservation_ttl_s=math.inf))
        self.namespace = namespace_of(workload.name, workload.split, workload.seed)
        self.functions = [f"{self.namespace}/{f.name}" for f in FUNCTIONS]
        calls = len(workload)
        self.node_of = np.full(calls, -1, np.int64)
        self.start_s, self.finish_s = np.full(calls, np.nan), np.full(calls, np.nan)
        self.cold = np.zeros(calls, np.bool_)
        self.unseen: list[int] = []  # finished, and no sample has said so yet
        self.now_s = 0.0

    def run(self) -> Records:
        """Start to last completion."""
        for node in self.nodes:
            self.state.put_node(self._node_facts(node))
        self._introduce_functions()
        self._publish(self._sample())
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
        return Records(self.workload.arrival_s, self.workload.function, self.node_of, self.start_s, self.finish_s, self.cold)

    # ---- what policies see --------------------------------------------------------------------------------------------

    def _introduce_functions(self) -> None:
        fleet = self.fleet
        for f, name in enumerate(self.functions):
            start = PodFacts(
                f"start-{f}", self.namespace, name, name, "", "tiphys", 0, 0, True, False, (), 0.0, float(fleet.functions["init_s"][f])
            )
            self.state.put_pod(start, 0.0)
        profiles = {
            name: FunctionProfile(
                float(fleet.functions["warm_work"][f] / fleet.functions["parallelism"][f]),
                float(fleet.functions["init_s"][f] + fleet.functions["cold_work"][f] / fleet.functions["parallelism"][f]),
                float(fleet.functions["warm_work"][f]),
                float(fleet.functions["cold_work"][f]),
                float(fleet.functions["parallelism"][f]),
            )
            for f, name in enumerate(self.functions)
        }
        self.state.put_profiles(profiles)

    def _node_facts(self, node: _Node) -> NodeFacts:
        return NodeFacts(node.name, round(node.cores * 1000), round(node.capacity), True, "", frozenset())

    def _sample(self) -> _Sample:
        window, alive = self.scenario.period_s, [n for n in self.nodes if n.alive]
        readings = np.zeros((len(alive), len(NODE_READINGS)), np.float32)
        idle: dict[str, dict[str, float]] = {name: {n.name: 0.0 for n in alive} for name in self.functions}
        for row, node in enumerate(alive):
            self._forget_old(node)
            used = math.floor(node.busy / CPU_TICK_S + 0.5) * CPU_TICK_S / window
            disk = (node.reads + node.writes) / window
            waiting = min(disk * 2e-4, max(node.cores - used, 0.0))
            pool = node.capacity - node.free(self.fleet)
            values = {
                "cpu_user": used * 0.94, "cpu_kernel": used * 0.06, "cpu_idle": max(node.cores - used - waiting, 0.0),
                "cpu_iowait": waiting, "cpu_softirq": (node.received + node.sent) * 1e-9 / window, "ctx_switches": node.switches / window,
                "cpu_load_avg": math.floor(node.load / LOAD_TICK + 0.5) * LOAD_TICK, "memory_free": node.capacity - pool,
                "memory_buffers": 64 * 2**20,
                "memory_cached": pool * 0.25 + 128 * 2**10, "disk_read": node.reads / window, "disk_read_merged": node.reads * 0.2 / window,
                "disk_read_time": node.reads * 2e-4 / window, "disk_write": node.writes / window,
                "disk_write_merged": node.writes * 0.4 / window, "disk_write_time": node.writes * 4e-4 / window,
                "net_recv": node.received / window, "net_sent": node.sent / window,
            }  # fmt: skip
            for name, value in values.items():
                readings[row, COLUMN[name]] = value
            node.busy = node.switches = node.reads = node.writes = node.received = node.sent = 0.0
            for c in node.containers:
                if c.call < 0:
                    idle[self.functions[c.function]][node.name] += 1
        return _Sample(self.now_s, [n.name for n in alive], readings, idle)

    def _publish(self, sample: _Sample) -> None:
        self.state.put_idle(sample.idle, sample.at_s)
        self.state.put_readings(sample.names, sample.readings, np.full(len(sample.names), sample.at_s))
        for k in [k for k in self.unseen if self.finish_s[k] <= sample.at_s]:
            self.state.finished(uid_of(k))
            self.unseen.remove(k)

    def _place(self, k: int) -> None:
        function, memory = int(self.workload.function[k]), float(self.fleet.functions["memory"][self.workload.function[k]])
        name, state = self.functions[function], self.state
        request = PlacementRequest(uid_of(k), self.namespace, name, 0, int(memory))
        rows = state.nodes.rows(sorted(state.nodes.row_of))
        state.tick(self.now_s)
        view = state.view(request, rows)
        if isinstance(self.policy, Hashing):  # its balancer knows of completions at once
            pending = np.array(
                [sum(self.fleet.functions["memory"][self.workload.function[j]] for j in self._unfinished(n)) for n in self._alive()]
            )
            view = replace(view, available_memory_bytes=view.memory_capacity_bytes - pending)
        scores = self.policy.score(view, state.memory())
        best = order(scores, tie_breakers(request.uid, view.name_hash), self.policy.epsilon)[0]
        node = self._alive()[int(best)]
        state.decided(request, node.name, self.now_s)
        state.bound(
            PodFacts(request.uid, self.namespace, "", name, node.name, "tiphys", 0, int(memory), False, False, (), None, None), self.now_s
        )
        self.node_of[k] = self.nodes.index(node)
        self._forget_old(node)
        if node.queue or not self._start(node, k):
            node.queue.append(k)

    # ---- what happens ------------------------------------------------------------------------------------------------

    def _alive(self) -> list[_Node]:
        return [n for n in self.nodes if n.alive]

    @staticmethod
    def _unfinished(node: _Node) -> list[int]:
        return [c.call for c in node.containers if c.call >= 0] + node.queue

    def _forget_old(self, node: _Node) -> None:
        node.containers = [c for c in node.containers if c.call >= 0 or self.now_s - c.since_s <= self.fleet.keep_alive_s]

    def _start(self, node: _Node, k: int) -> bool:
        fleet, function = self.fleet, int(self.workload.function[k])
        warm = [c for c in node.containers if c.call < 0 and c.function == function]
        if warm:
            container = max(warm, key=lambda c: c.since_s)
            container.call, container.left = k, float(fleet.functions["warm_work"][function] * fleet.noise[k])
        else:
            idle = sorted((c for c in node.containers if c.call < 0), key=lambda c: c.since_s)
            if node.free(fleet) + sum(fleet.functions["memory"][c.function] for c in idle) < fleet.functions["memory"][function]:
                return False
            while node.free(fleet) < fleet.functions["memory"][function]:
                node.containers.remove(idle.pop(0))
            left = float(fleet.functions["cold_work"][function] * fleet.noise[k])
            node.containers.append(_Container(function, k, self.now_s + float(fleet.functions["init_s"][function]), left))
            node.reads += fleet.functions["disk_reads_cold"][function]
        node.received += fleet.functions["net_received"][function]
        self.start_s[k], self.cold[k] = self.now_s, not warm
        return True

    def _advance(self, until_s: float) -> None:
        while True:
            rates = [node.rates(self.fleet) for node in self.nodes]
            next_s = math.inf
            for node, rate in zip(self.nodes, rates, strict=True):
                for c in node.containers:
                    if c.call >= 0:
                        next_s = min(next_s, self.now_s + max(c.left, 0.0) / rate[id(c)] if c.started else c.ready_s)
            step_to = min(next_s, until_s)
            if not math.isfinite(step_to):
                return
            self._flow(step_to - self.now_s, rates)
            self.now_s = step_to
            if next_s > until_s:
                return
            for node in self.nodes:
                self._settle(node)

    def _flow(self, seconds: float, rates: list[dict[int, float]]) -> None:
        decay = math.exp(-seconds / 60)
        for node, rate in zip(self.nodes, rates, strict=True):
            threads = 0.0
            for c in node.containers:
                if c.started and c.call >= 0:
                    c.left -= rate[id(c)] * seconds
                    node.busy += rate[id(c)] * seconds
                    threads += self.fleet.functions["parallelism"][c.function]
            node.switches += (100 + 400 * threads) * seconds
            node.load = node.load * decay + threads * (1 - decay)

    def _settle(self, node: _Node) -> None:
        freed = False
        for c in list(node.containers):
            if c.call >= 0 and not c.started and c.ready_s <= self.now_s:
                c.started = True
            elif c.call >= 0 and c.started and c.left <= _EPSILON_S * 8:
                k, freed = c.call, True
                self.finish_s[k] = self.now_s
                self.unseen.append(k)
                node.writes += self.fleet.functions["disk_writes"][c.function]
                node.sent += self.fleet.functions["net_sent"][c.function]
                c.call, c.since_s = -1, self.now_s
                if not self.fleet.reuse:
                    node.containers.remove(c)
        if freed:
            self._forget_old(node)
            while node.queue and self._start(node, node.queue[0]):
                node.queue.pop(0)

    def _lose(self, index: int) -> None:
        node = self.nodes[index]
        again = sorted(self._unfinished(node))
        node.alive, node.containers, node.queue, node.load = False, [], [], 0.0
        self.state.drop_node(node.name)
        for k in again:
            self.state.finished(uid_of(k))
        for k in again:
            self._place(k)

    def _join(self, index: int) -> None:
        node = self.nodes[index]
        node.alive = True
        self.state.put_node(self._node_facts(node))
