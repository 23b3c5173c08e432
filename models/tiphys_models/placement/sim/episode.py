"""A workload, a policy and a scenario in; one record a call out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.rules import Greedy, Hashing, LeastConnections, RoundRobin, StaticRank, WarmFirst, home_of
from tiphys_models.placement.sim import decide
from tiphys_models.placement.sim.cluster import SimulatedCluster, new_cluster
from tiphys_models.placement.sim.decide import CompiledRule
from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.observe import new_seen
from tiphys_models.placement.sim.run import ARGMAX, Script, Tape, run_workload
from tiphys_models.placement.sim.scenario import FaasScenario, make_fleet
from tiphys_models.placement.sim.workloads import CallWorkload

_NO_CHOICE = 1e-9
"""Epsilon of comparators whose costs are exact."""


@dataclass(frozen=True, slots=True)
class Comparator:
    """A policy that only the simulator can run: it knows what nobody knows, or is kept for comparison."""

    name: str
    kind: int


CLAIRVOYANT = Comparator("clairvoyant", decide.CLAIRVOYANT)
GREEDY_STAY = Comparator("greedy-stay", decide.GREEDY_STAY)
Player = PlacementPolicy | Comparator

_KINDS: dict[type[Any], int] = {
    Hashing: decide.HASHING,
    RoundRobin: decide.ROUND_ROBIN,
    LeastConnections: decide.LEAST_CONNECTIONS,
    Greedy: decide.GREEDY,
    StaticRank: decide.STATIC_RANK,
    WarmFirst: decide.WARM_FIRST,
    FaaSRank: decide.NETWORK,
}


@dataclass(frozen=True, slots=True)
class CallRecords:
    """One entry a call, in order of arrival; metrics are computed from nothing else."""

    arrival_s: FloatArray
    function: IntArray
    node: IntArray
    start_s: FloatArray
    """When it got its container."""
    finish_s: FloatArray
    cold: BoolArray

    @property
    def completion_s(self) -> FloatArray:
        """Arrival to completion: queueing, start and execution."""
        return self.finish_s - self.arrival_s


def records_of(workload: CallWorkload, cluster: SimulatedCluster) -> CallRecords:
    """What has become of the workload's calls."""
    calls = cluster.calls
    return CallRecords(workload.arrival_s, workload.function, *(calls[name].copy() for name in ("node", "start_s", "finish_s", "cold")))


def node_name(index: int) -> str:
    """Names sort as the nodes are numbered."""
    return f"node-{index:05d}"


def name_hashes(nodes: int) -> HashArray:
    """What orders equal nodes."""
    return np.array([stable_hash(node_name(n)) for n in range(nodes)], np.uint64)


def compile_rule(player: Player, workload: CallWorkload, nodes: int) -> CompiledRule:
    """The policy as the compiled simulator reads it: its own numbers, nothing of this module's."""
    if isinstance(player, Comparator):
        return _rule(player.kind, 0.5 if player.kind == decide.GREEDY_STAY else _NO_CHOICE)
    kind = _KINDS.get(type(player))
    if kind is None:
        raise InvalidInput(f"the simulator has no compiled form of policy {player.name!r}")
    if isinstance(player, Hashing):
        walks = [[home_of(max(known, 1), int(h)) for known in range(nodes + 1)] for h in workload.function_hash]
        table = np.array(walks, np.int64)
        return _rule(kind, player.epsilon, home=table[:, :, 0], step_inverse=table[:, :, 1])
    if isinstance(player, StaticRank):
        return _rule(kind, player.epsilon, weights=np.array(player.weights))
    if isinstance(player, FaaSRank):
        return network_rule(player.network.weights, player.network.mean, player.network.scale, player.network.card.clip, player.epsilon)
    return _rule(kind, player.epsilon)


def network_rule(
    weights: tuple[tuple[FloatArray, FloatArray], ...], mean: FloatArray, scale: FloatArray, clip: float, epsilon: float
) -> CompiledRule:
    """A network that is still being trained."""
    (w0, b0), (w1, b1), (w2, b2) = weights
    return _rule(decide.NETWORK, epsilon, inputs=len(mean), mean=mean, scale=scale, clip=clip, layers=(w0, b0, w1, b1, w2, b2))


def _rule(
    kind: int,
    epsilon: float,
    *,
    weights: FloatArray | None = None,
    home: IntArray | None = None,
    step_inverse: IntArray | None = None,
    inputs: int = 0,
    mean: FloatArray | None = None,
    scale: FloatArray | None = None,
    clip: float = 0.0,
    layers: tuple[FloatArray, ...] | None = None,
) -> CompiledRule:
    matrix, vector = np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
    table = np.zeros((0, 0), np.int64)
    given = layers or (matrix, vector) * 3
    return CompiledRule(
        kind, float(epsilon), np.zeros(0) if weights is None else weights.astype(np.float64),
        table if home is None else np.ascontiguousarray(home), table if step_inverse is None else np.ascontiguousarray(step_inverse),
        inputs, vector if mean is None else mean, vector if scale is None else scale, float(clip),
        *(np.ascontiguousarray(layer, np.float32) for layer in given),
    )  # fmt: skip


def new_tape(calls: int, nodes: int, inputs: int, *, uniform: FloatArray | None = None, record: bool = False, costs: bool = False) -> Tape:
    """Room for what is wanted."""
    return Tape(
        uniform=np.zeros(0) if uniform is None else uniform,
        inputs=np.zeros((calls if record else 0, nodes, inputs), np.float32),
        chosen=np.zeros(calls if record or uniform is not None else 0, np.int64),
        log_p=np.zeros(calls if uniform is not None else 0),
        costs=np.zeros((calls if costs else 0, nodes)),
    )


def simulate(workload: CallWorkload, player: Player, scenario: FaasScenario) -> CallRecords:
    """The workload through the policy, choosing as the extender would."""
    rule = compile_rule(player, workload, scenario.nodes)
    return play(workload, rule, scenario, new_tape(len(workload), scenario.nodes, 0), ARGMAX)


def play(
    workload: CallWorkload,
    rule: CompiledRule,
    scenario: FaasScenario,
    tape: Tape,
    how: int,
    functions: tuple[FunctionModel, ...] = FUNCTIONS,
) -> CallRecords:
    """The workload through a compiled rule, recording on a tape."""
    fleet = make_fleet(scenario, workload, functions)
    calls = len(workload)
    cluster = new_cluster(scenario.cores(), scenario.capacity_bytes(), float(fleet.functions["memory"].min()), calls, len(fleet.functions))
    seen = new_seen(scenario.nodes, len(fleet.functions), calls, scenario.period_s, scenario.delay_s)
    events = sorted(scenario.events, key=lambda e: e.at_s)
    script = Script(
        np.array([e.at_s for e in events], np.float64),
        np.array([e.node for e in events], np.int64),
        np.array([e.joins for e in events], np.bool_),
    )
    run_workload(
        cluster, fleet, seen, rule, tape, script, how, name_hashes(scenario.nodes), workload.uid_hash, scenario.period_s, scenario.delay_s
    )  # fmt: skip
    return records_of(workload, cluster)
