"""What a workload runs on: nodes, how fresh readings are, and the modelling choices that decide the results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement.calls import filled
from tiphys_models.placement.sim.cluster import CAPPED, FUNCTION, WORK_CONSERVING, RecordArray, SimulatedFleet
from tiphys_models.placement.sim.functions import FUNCTIONS, MIB, FunctionModel
from tiphys_models.placement.sim.workloads import CallWorkload

GIB = 2**30
MIXED_CORES: tuple[int, ...] = (4, 4, 8, 8, 16, 4, 8, 16, 4, 8)
"""Repeated: 80 cores a ten nodes, as in the uniform fleet; memory in step."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node that leaves with everything on it, or joins empty."""

    at_s: float
    node: int
    joins: bool


@dataclass(frozen=True, slots=True)
class FaasScenario:
    """The default is the model of the published tables: 10 nodes of 8 cores and 2 GiB, readings of one second."""

    name: str = "default"
    nodes: int = 10
    mixed: bool = False
    memory_gib: float = 2.0
    """Memory for functions on a node of 8 cores; other sizes in step."""
    period_s: float = 1.0
    """How often nodes are sampled; rates are over this window."""
    delay_s: float = 0.0
    """How long a sample takes to reach the policies."""
    keep_alive_s: float = 600.0
    reuse: bool = True
    """Whether a container serves a second call; without it every call starts cold."""
    capped: bool = False
    """Cores capped at the share of memory instead of work-conserving shares."""
    interference: float = 0.0
    start_cost: float = 1.0
    """Multiplies `init_s` and what a cold execution takes longer than a warm one."""
    profiled: float = 1.0
    """Share of the functions of which a runtime reports what calls are like; which of them differs from seed to seed."""
    events: tuple[NodeEvent, ...] = field(default=())

    def cores(self) -> FloatArray:
        """Cores of each node."""
        if not self.mixed:
            return np.full(self.nodes, 8.0)
        return np.array([MIXED_CORES[n % len(MIXED_CORES)] for n in range(self.nodes)], np.float64)

    def capacity_bytes(self) -> FloatArray:
        """Memory for functions, per node."""
        return self.cores() / 8 * self.memory_gib * GIB

    def with_nodes(self, nodes: int) -> FaasScenario:
        """The same scenario on another number of nodes."""
        return replace(self, nodes=nodes)


NO_REUSE = FaasScenario("no-reuse", reuse=False)
LITTLE_MEMORY = FaasScenario("memory-1g", memory_gib=1.0)
SENSITIVITY: tuple[FaasScenario, ...] = (
    NO_REUSE,
    FaasScenario("capped-shares", capped=True),
    FaasScenario("interference", interference=0.1),
    LITTLE_MEMORY,
    FaasScenario("memory-4g", memory_gib=4.0),
    FaasScenario("memory-8g", memory_gib=8.0),
    FaasScenario("start-x0.3", start_cost=0.3),
    FaasScenario("start-x2", start_cost=2.0),
)
"""One modelling choice changed at a time."""

AGES: tuple[FaasScenario, ...] = (
    FaasScenario("age-5s", period_s=5.0),
    FaasScenario("age-15s", period_s=15.0),
    FaasScenario("age-30s", period_s=30.0),
    FaasScenario("age-1s+3s", delay_s=3.0),
)
SIZES: tuple[FaasScenario, ...] = (
    FaasScenario("nodes-5", nodes=5),
    FaasScenario("nodes-50", nodes=50),
    FaasScenario("nodes-200", nodes=200),
)
MIXED = FaasScenario("mixed", mixed=True)
PROFILED: tuple[FaasScenario, ...] = (
    FaasScenario("profiles-80", profiled=0.8),
    FaasScenario("profiles-50", profiled=0.5),
    FaasScenario("profiles-30", profiled=0.3),
)
"""Scenarios in which runtimes report call profiles for only a share of the functions."""
NODE_LOSS = FaasScenario("node-loss", events=(NodeEvent(12.0, 3, joins=False), NodeEvent(27.0, 3, joins=True)))


def profiled_functions(scenario: FaasScenario, workload: CallWorkload, functions: tuple[FunctionModel, ...] = FUNCTIONS) -> BoolArray:
    """Mask of the functions whose call profiles are reported: a fixed pseudo-random choice for each workload and seed."""
    order = sorted(range(len(functions)), key=lambda f: stable_hash(f"{workload.name}/{workload.seed}/{functions[f].name}"))
    mask = np.zeros(len(functions), np.bool_)
    mask[order[: round(scenario.profiled * len(functions))]] = True
    return mask


def _profile(record: RecordArray) -> tuple[float, ...]:
    """What a runtime would report of a function."""
    warm_work, cold_work, parallelism = float(record["warm_work"]), float(record["cold_work"]), float(record["parallelism"])
    return warm_work / parallelism, float(record["init_s"]) + cold_work / parallelism, warm_work, cold_work, parallelism


def make_fleet(scenario: FaasScenario, workload: CallWorkload, functions: tuple[FunctionModel, ...] = FUNCTIONS) -> SimulatedFleet:
    """Functions and calls as the compiled simulator reads them."""

    def cold_work(f: FunctionModel) -> float:
        slower = max(f.cold_s - f.init_s - f.warm_s, 0.0)
        alone_s = f.cold_s - f.init_s if scenario.start_cost == 1.0 else f.warm_s + slower * scenario.start_cost
        return alone_s * f.parallelism

    records = np.zeros(len(functions), FUNCTION)
    for record, f in zip(records, functions, strict=True):
        record["memory"] = f.memory_mib * MIB
        record["init_s"] = f.init_s * scenario.start_cost
        record["warm_work"] = f.warm_work_core_s
        record["cold_work"] = cold_work(f)
        record["parallelism"] = f.parallelism
        record["disk_reads_cold"] = f.disk_reads_cold
        record["disk_writes"] = f.disk_writes
        record["net_received"] = f.net_received_bytes
        record["net_sent"] = f.net_sent_bytes
    profiled = profiled_functions(scenario, workload, functions)
    declared = np.array([_profile(record) for record in records])
    return SimulatedFleet(
        functions=records,
        profiled=profiled,
        profiles=filled(np.where(profiled[:, None], declared, np.nan))[:-1],
        keep_alive_s=scenario.keep_alive_s,
        sharing=CAPPED if scenario.capped else WORK_CONSERVING,
        interference=scenario.interference,
        reuse=scenario.reuse,
        arrival_s=workload.arrival_s,
        function=workload.function,
        noise=workload.noise,
    )
