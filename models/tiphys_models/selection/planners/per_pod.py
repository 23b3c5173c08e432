"""Placement policies as planners: task by task with reservations, as the extender would place them one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tiphys_models.base.facts import NodeFacts, PodFacts
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.rank import order, tie_breakers
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.placement.registry import shipped_policy
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.state import PlacementState
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.protocol import Planner
from tiphys_models.selection.planners.registry import COMPARATORS, make_planner, planner_names

_MIB = 2**20
_TASK_MILLI = 100
_COLUMN = {feature.name: index for index, feature in enumerate(NODE_READINGS)}


class PerPod:
    """What a placement policy would do with the waiting tasks, in their order."""

    def __init__(self, policy: PlacementPolicy) -> None:
        self._policy = policy

    @property
    def name(self) -> str:
        """Name of the placement policy."""
        return self._policy.name

    def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
        """A task for which no host has room waits."""
        placed, chosen = _placement_state(state), np.full(len(tasks), UNPLACED, np.int64)
        ram, disk = state.free_ram_mib(), state.free_disk_mib()
        for task in range(len(tasks)):
            fits = (ram >= tasks.ram_mib[task]) & (disk >= tasks.disk_mib[task]) & state.fleet.allowed(tasks.pools[task])
            hosts = np.flatnonzero(fits)
            if not len(hosts):
                continue
            rows = placed.nodes.rows([_node(host) for host in hosts.tolist()])
            request = _request(f"waiting-{task}", state, int(tasks.application[task]), float(tasks.ram_mib[task]))
            scores = self._policy.score(placed.view(request, rows), placed.memory())
            first = int(order(scores, tie_breakers(request.uid, placed.nodes.name_hash[rows]), self._policy.epsilon)[0])
            host = int(hosts[first])
            placed.decided(request, _node(host), state.time_s)
            chosen[task] = host
            ram[host] -= tasks.ram_mib[task]
            disk[host] -= tasks.disk_mib[task]
        return Plan(chosen)


def make_candidate(name: str) -> Planner:
    """A planner, or a placement policy as one; learned ones with their shipped weights."""
    if PLACEMENT.entry(name) is None:
        return make_planner(name)
    return PerPod(shipped_policy(name))


def known_candidates() -> tuple[str, ...]:
    """Names that `select.among` may hold here: planners, then placement policies. Comparators are for tables only."""
    planners = (name for name in planner_names() if name not in COMPARATORS)
    return (*planners, *PLACEMENT.names())


def make_candidates(names: Sequence[str]) -> dict[str, Planner]:
    """Several, by name, in that order."""
    return {name: make_candidate(name) for name in names}


def _placement_state(state: CloudState) -> PlacementState:
    """Hosts as nodes with what is known of their CPU and memory; readings nobody has here are 0 alike on all of them."""
    placed, fleet = PlacementState(), state.fleet
    cores, ram, free = fleet.column("cores"), fleet.column("ram_mib"), state.free_ram_mib()
    for host in range(len(fleet)):
        placed.put_node(NodeFacts(_node(host), int(cores[host] * 1000), int(ram[host] * _MIB), True, "", ()))
    running = state.running
    for task, host in enumerate(running.host.tolist()):
        application, memory = int(running.tasks.application[task]), int(running.tasks.ram_mib[task] * _MIB)
        placed.put_pod(_pod(f"running-{task}", state, application, memory, _node(host)), state.time_s - float(running.tasks.age_s[task]))
    readings = np.zeros((len(fleet), len(NODE_READINGS)), np.float32)
    readings[:, _COLUMN["cpu_user"]] = state.utilisation * cores
    readings[:, _COLUMN["cpu_idle"]] = (1.0 - state.utilisation) * cores
    readings[:, _COLUMN["cpu_load_avg"]] = state.running_count()
    readings[:, _COLUMN["memory_free"]] = free * _MIB
    placed.put_readings([_node(host) for host in range(len(fleet))], readings, np.full(len(fleet), state.time_s))
    return placed


def _node(host: int) -> str:
    return f"host-{host:05d}"


def _request(uid: str, state: CloudState, application: int, ram_mib: float) -> PlacementRequest:
    return PlacementRequest(uid, "", state.applications[application].name, _TASK_MILLI, int(ram_mib * _MIB), ())


def _pod(uid: str, state: CloudState, application: int, memory: int, node: str) -> PodFacts:
    function = state.applications[application].name
    return PodFacts(uid, "", uid, function, node, "", _TASK_MILLI, memory, False, False, (), None, None)
