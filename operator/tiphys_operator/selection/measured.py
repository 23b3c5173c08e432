"""A live cluster as planners and selectors see it: hosts, running tasks, waiting and expected tasks.

Live, the third capacity (`disk` in the simulated cloud, where no limit on CPU requests exists) is CPU requests in milli-cores: the
scheduler refuses a node without room for them, so plans must not put pods there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tiphys_models.selection.cloud.hosts import Fleet, HostType
from tiphys_models.selection.cloud.state import UNPLACED, CloudState, Plan, Running
from tiphys_models.selection.cloud.tasks import AIOTBENCH, Tasks
from tiphys_operator.cluster.live import LiveNode, LivePod
from tiphys_operator.selection.history import History
from tiphys_operator.selection.ledger import run_s
from tiphys_operator.selection.memory import Memory, Profile

TASKS_MAX = 200
"""Waiting and expected pods of one interval; planners' times grow with them, and what is beyond waits for the next."""
_HORIZON = 200
"""Intervals: a task that takes longer counts as that long, because outlooks step through every interval to the last end."""
_POOLS_MAX = 63
_SELECTORS_MAX = 512
"""That are looked at, node by node; those of the tasks come first. What runs with another stays where it is all the same."""
_LEAST_CORES = 0.1

Wanted = tuple[tuple[str, str], ...]
"""A node selector, as pairs of label and value."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One moment of a policy."""

    state: CloudState
    tasks: Tasks
    hosts: tuple[str, ...]
    """Names, in the fleet's order."""
    functions: tuple[str, ...]
    """The function of each task."""
    waiting: int
    """How many of the tasks are pods that wait; the others are expected."""
    bound: Mapping[tuple[str, str], int]
    """Unfinished pods by function and node."""
    history: History
    """The nodes' utilisation up to and including this moment."""


@dataclass(frozen=True, slots=True)
class _Task:
    function: str
    work_core_s: float
    age_s: float
    due_s: float
    ram_mib: float
    milli: float
    selector: Wanted
    host: int = UNPLACED
    used_core_s: float = 0.0


def measure(
    memory: Memory, mine: Callable[[LivePod], bool], nodes: Mapping[str, LiveNode], pods: Iterable[LivePod],
    kinds: Mapping[str, HostType], busy_cores: Mapping[str, float], now_s: float, interval_s: float, sla_factor: int,
) -> Measured:  # fmt: skip
    """What can be known now. Utilisation is what was measured of a node's cores, else what running pods request of them."""
    hosts = tuple(sorted(name for name, node in nodes.items() if node.usable))
    index = {name: i for i, name in enumerate(hosts)}
    names = list(kinds)
    type_of = np.array([names.index(nodes[name].instance_type or "unknown") for name in hosts], np.int64)
    running, waiting = list[_Task](), list[_Task]()
    bound: dict[tuple[str, str], int] = {}
    busy = np.zeros(len(hosts))
    most_cores = max((nodes[name].cores for name in hosts), default=0.0)
    most_ram_mib = max((nodes[name].ram_mib for name in hosts), default=0.0)
    longest_s = _HORIZON * interval_s
    for pod in sorted(pods, key=lambda p: (p.created_s, p.uid)):
        if pod.finished_s is not None or pod.of_machine:
            continue
        profile = memory.profiles.get(pod.function)
        age_s = max(now_s - pod.created_s, 0.0)
        if not pod.node:
            # what no node could hold waits in vain, whatever is planned
            if mine(pod) and pod.cores <= most_cores and pod.ram_mib <= most_ram_mib:
                waiting.append(_task(pod.function, profile, pod.cores, pod.ram_mib, pod.node_selector, sla_factor, age_s, longest_s))
            continue
        bound[pod.function, pod.node] = bound.get((pod.function, pod.node), 0) + 1
        if pod.node in index:
            host = index[pod.node]
            done_s = max(now_s - (pod.scheduled_s if pod.scheduled_s is not None else now_s), 0.0)
            # it cannot have more than its node: the kubelet would not run it
            cores, ram_mib = min(pod.cores, nodes[pod.node].cores), min(pod.ram_mib, nodes[pod.node].ram_mib)
            busy[host] += cores
            running.append(_task(pod.function, profile, cores, ram_mib, pod.node_selector, sla_factor, age_s, longest_s, host, done_s))
    expected = [
        _task(name, profile, profile.cores, profile.ram_mib, profile.selector, sla_factor, 0.0, longest_s)
        for name, profile in sorted(memory.profiles.items())
        if profile.cores <= most_cores and profile.ram_mib <= most_ram_mib
        for _ in range(math.ceil(profile.arrivals) if profile.arrivals else 0)
    ]
    tasks = [*waiting, *expected][:TASKS_MAX]
    pools = _Pools([nodes[name] for name in hosts], (task.selector for task in (*tasks, *running)))
    fleet = Fleet(tuple(kinds.values()), type_of, np.array(pools.of_host, np.int64))
    rows = _columns(running, pools)
    used = np.array([task.used_core_s for task in running], np.float64)
    busy = np.array([busy_cores.get(name, requested) for name, requested in zip(hosts, busy.tolist(), strict=True)], np.float64)
    utilisation = np.minimum(busy / np.maximum(fleet.column("cores"), 1e-9), 1.0) if hosts else busy
    history = memory.history.after(hosts, utilisation)
    previous = [(application, name) for application, name in memory.placed if name in index]
    state = CloudState(
        time_s=now_s,
        interval_s=interval_s,
        fleet=fleet,
        applications=AIOTBENCH,
        running=Running(
            rows,
            np.array([task.host for task in running], np.int64),
            used,
            np.maximum(rows.work_core_s - used, 0.05 * rows.work_core_s),
        ),
        awake=np.bincount([task.host for task in running], minlength=len(hosts)).astype(np.bool_),
        resume_s=0.0,
        utilisation=utilisation,
        history=history.of(hosts),
        previous_application=np.array([application for application, _ in previous], np.int64),
        previous_host=np.array([index[name] for _, name in previous], np.int64),
    )
    waits = min(len(waiting), TASKS_MAX)
    return Measured(state, _columns(tasks, pools), hosts, tuple(task.function for task in tasks), waits, bound, history)


def placed(found: Measured, plan: Plan) -> list[tuple[int, str]]:
    """What the next interval has to know of a plan: application and node of every task with a node."""
    pairs = zip(found.tasks.application.tolist(), plan.host.tolist(), strict=True)
    return [(application, found.hosts[host]) for application, host in pairs if host != UNPLACED]


def slots(found: Measured, plan: Plan, most_nodes: int, most_functions: int, most_lines: int) -> dict[str, dict[str, int]]:
    """The plan's pods by function and node, in its order: those there now and those to come. Nodes that get no new pod are left out."""
    result: dict[str, dict[str, int]] = {}
    lines = 0
    for function, host in zip(found.functions, plan.host.tolist(), strict=True):
        if host == UNPLACED:
            continue
        mine = result.get(function)
        if mine is None:
            if len(result) >= most_functions:
                continue
            mine = result[function] = {}
        node = found.hosts[host]
        if node not in mine:
            if len(mine) >= most_nodes or lines >= most_lines:
                continue
            # pods already there count, too: an extender finds free slots from the pods it sees, and needs no counter that dies with it
            mine[node] = found.bound.get((function, node), 0)
            lines += 1
        mine[node] += 1
    return result


def _task(
    function: str, profile: Profile | None, cores: float, ram_mib: float, selector: Wanted, sla_factor: int, age_s: float,
    longest_s: float, host: int = UNPLACED, ran_s: float = 0.0,
) -> _Task:  # fmt: skip
    seconds, wide = min(run_s(profile), longest_s), max(cores, _LEAST_CORES)
    return _Task(function, seconds * wide, age_s, sla_factor * seconds + 1.0, ram_mib, cores * 1000, selector, host, ran_s * wide)


def _columns(tasks: list[_Task], pools: _Pools) -> Tasks:
    works = np.array([task.work_core_s for task in tasks], np.float64)
    mix = np.array([application.work_core_s for application in AIOTBENCH])
    return Tasks(
        # learned selectors know seven applications: a function counts as the one with the nearest demand
        application=np.abs(np.log(np.maximum(works, 1e-3))[:, None] - np.log(mix)).argmin(axis=1).astype(np.int64),
        work_core_s=works,
        age_s=np.array([task.age_s for task in tasks], np.float64),
        deadline_s=np.array([task.due_s for task in tasks], np.float64),
        ram_mib=np.array([task.ram_mib for task in tasks], np.float64),
        disk_mib=np.array([task.milli for task in tasks], np.float64),
        pools=np.array([pools.mask(task.selector) for task in tasks], np.uint64),
    )


class _Pools:
    """Node selectors as pools: nodes that satisfy the same selectors are one pool."""

    def __init__(self, nodes: list[LiveNode], selectors: Iterable[Wanted]) -> None:
        self._order = sorted(islice(dict.fromkeys(selectors), _SELECTORS_MAX))
        number: dict[tuple[bool, ...], int] = {}
        self.of_host: list[int] = []
        for node in nodes:
            signature = tuple(all(node.labels.get(key) == value for key, value in selector) for selector in self._order)
            # more kinds of nodes than bits: the rest is left out of plans, and reached through the fallback
            self.of_host.append(number.setdefault(signature, min(len(number), _POOLS_MAX)))
        self._bits: dict[Wanted, int] = dict.fromkeys(self._order, 0)
        for signature, pool in number.items():
            if pool < _POOLS_MAX:
                for selector, allowed in zip(self._order, signature, strict=True):
                    self._bits[selector] |= allowed << pool

    def mask(self, selector: Wanted) -> int:
        """Bits of the pools whose nodes satisfy it."""
        return self._bits.get(selector, 0)
