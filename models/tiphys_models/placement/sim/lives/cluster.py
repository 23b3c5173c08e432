"""Nodes that come and go, and the pods on them, in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled, inlined
from tiphys_models.placement.sim.lives.world import DAY_S, DAYS, NODE_CORES, NODE_GIB

NOWHERE = -1
_NEVER = np.inf
_SLACK = 1e-9
_END_S = DAYS * DAY_S


class LivesFleet(NamedTuple):
    """What is given: the pods, and what their world is like."""

    arrival_s: FloatArray
    application: IntArray
    life_s: FloatArray
    works: BoolArray
    cores: FloatArray
    gib: FloatArray
    use_cores: FloatArray
    uid_hash: HashArray
    node_hash: HashArray
    interference: float
    start_s: float
    linger_s: float
    consolidate_s: float
    """How often nodes with little on them are emptied; infinite for never."""


class LivesCluster(NamedTuple):
    """What changes. Rows of nodes that have gone are used again."""

    # nodes
    rows: IntArray
    """One number: how many rows have been in use."""
    open: BoolArray
    ready_s: FloatArray
    """When it can take pods."""
    opened_s: FloatArray
    empty_s: FloatArray
    """Since when there has been nothing on it; infinite if there is something."""
    cores: FloatArray
    """Requested, as are `gib`."""
    gib: FloatArray
    use: FloatArray
    promised_cores: FloatArray
    """Requested by pending pods that it was opened for."""
    promised_gib: FloatArray
    pods: IntArray
    """[nodes, pods]: the first `running` entries of each row."""
    running: IntArray
    done_s: FloatArray
    """Work that a pod would have done that had been there from the node's opening."""
    at_s: FloatArray
    """As of when."""
    next_s: FloatArray
    """When the next of its pods ends."""
    # pods
    node: IntArray
    started_s: FloatArray
    ends_at_work_s: FloatArray
    """Its node's `done_s` when it ends, if it works."""
    ended_s: FloatArray
    passed: IntArray
    """Bins of lifetimes that it has been counted in."""
    promised: IntArray
    """Node that was opened for it while it is pending."""
    # totals of the second day
    hours: FloatArray
    """[node-hours, pod-seconds, pod-seconds of work, moved pods, most nodes at once]."""


NODE_HOURS, RAN_S, WORKED_S, MOVED, MOST_NODES = range(5)


def new_cluster(pods: int, rows: int = 512, most_pods: int = 80) -> LivesCluster:
    """No node and nothing placed."""
    return LivesCluster(
        rows=np.zeros(1, np.int64), open=np.zeros(rows, np.bool_), ready_s=np.zeros(rows), opened_s=np.zeros(rows),
        empty_s=np.full(rows, _NEVER), cores=np.zeros(rows), gib=np.zeros(rows), use=np.zeros(rows), promised_cores=np.zeros(rows),
        promised_gib=np.zeros(rows), pods=np.zeros((rows, most_pods), np.int64), running=np.zeros(rows, np.int64), done_s=np.zeros(rows),
        at_s=np.zeros(rows), next_s=np.full(rows, _NEVER), node=np.full(pods, NOWHERE), started_s=np.full(pods, np.nan),
        ends_at_work_s=np.zeros(pods), ended_s=np.full(pods, np.nan), passed=np.zeros(pods, np.int64), promised=np.full(pods, NOWHERE),
        hours=np.zeros(5),
    )  # fmt: skip


@inlined
def counted(from_s: float, to_s: float) -> float:
    """Seconds of this time that lie in the second day."""
    return max(min(to_s, _END_S) - max(from_s, DAY_S), 0.0)


@inlined
def slowed(use_cores: float, interference: float) -> float:
    """How many times longer work takes on a node whose pods would use so many cores."""
    busy = use_cores / NODE_CORES
    crowd = min(busy, 1.0)
    return max(busy, 1.0) + interference * crowd * crowd


@inlined
def advance(c: LivesCluster, f: LivesFleet, n: int, t: float) -> None:
    """Let the pods of a node work until t."""
    if t <= c.at_s[n]:
        return
    stretch = slowed(c.use[n], f.interference)
    inside = counted(c.at_s[n], t) * c.running[n]
    c.hours[RAN_S] += inside
    c.hours[WORKED_S] += inside / stretch
    c.done_s[n] += (t - c.at_s[n]) / stretch
    c.at_s[n] = t


@inlined
def end_of(c: LivesCluster, f: LivesFleet, n: int, p: int, stretch: float) -> float:
    """When a pod on a node ends, if nothing changes there."""
    by_work_s: float = c.at_s[n] + max(c.ends_at_work_s[p] - c.done_s[n], 0.0) * stretch
    by_clock_s: float = c.started_s[p] + f.life_s[p]
    return by_work_s if f.works[p] else by_clock_s


@inlined
def look_ahead(c: LivesCluster, f: LivesFleet, n: int) -> None:
    """Find when the next pod of a node ends, if nothing changes."""
    stretch = slowed(c.use[n], f.interference)
    next_s = _NEVER
    for i in range(c.running[n]):
        next_s = min(next_s, end_of(c, f, n, c.pods[n, i], stretch))
    c.next_s[n] = max(next_s, c.at_s[n])


@inlined
def fits(c: LivesCluster, f: LivesFleet, n: int, p: int) -> bool:
    """Whether the requests of a pod fit beside what is there."""
    room: bool = c.cores[n] + f.cores[p] <= NODE_CORES + _SLACK and c.gib[n] + f.gib[p] <= NODE_GIB + _SLACK
    return room


@compiled
def put(c: LivesCluster, f: LivesFleet, n: int, p: int, t: float) -> None:
    """A pod starts on a node."""
    advance(c, f, n, t)
    c.pods[n, c.running[n]] = p
    c.running[n] += 1
    c.cores[n] += f.cores[p]
    c.gib[n] += f.gib[p]
    c.use[n] += f.use_cores[p]
    c.empty_s[n] = _NEVER
    c.node[p] = n
    c.started_s[p] = t
    c.ends_at_work_s[p] = c.done_s[n] + f.life_s[p]
    look_ahead(c, f, n)


@compiled
def take(c: LivesCluster, f: LivesFleet, n: int, p: int, t: float) -> None:
    """A pod leaves its node."""
    advance(c, f, n, t)
    for i in range(c.running[n]):
        if c.pods[n, i] == p:
            c.pods[n, i] = c.pods[n, c.running[n] - 1]
            break
    c.running[n] -= 1
    if c.running[n] == 0:  # sums of fractions leave dust
        c.cores[n], c.gib[n], c.use[n] = 0.0, 0.0, 0.0
        c.empty_s[n] = t
    else:
        c.cores[n] -= f.cores[p]
        c.gib[n] -= f.gib[p]
        c.use[n] -= f.use_cores[p]
    look_ahead(c, f, n)


@compiled
def first_to_end(c: LivesCluster, f: LivesFleet, n: int) -> int:
    """The pod that ends at the node's `next_s`."""
    stretch = slowed(c.use[n], f.interference)
    best = NOWHERE
    best_s = _NEVER
    for i in range(c.running[n]):
        end_s = end_of(c, f, n, c.pods[n, i], stretch)
        if end_s < best_s:
            best, best_s = c.pods[n, i], end_s
    return best


@compiled
def open_node(c: LivesCluster, f: LivesFleet, t: float) -> int:
    """A node that is paid from now on and takes pods a little later."""
    n = 0
    while c.open[n]:
        n += 1
    c.open[n] = True
    c.rows[0] = max(c.rows[0], n + 1)
    c.opened_s[n] = t
    c.ready_s[n] = t + f.start_s
    c.at_s[n] = t
    c.empty_s[n] = t + f.start_s
    c.promised_cores[n], c.promised_gib[n] = 0.0, 0.0
    c.next_s[n] = _NEVER
    c.hours[MOST_NODES] = max(c.hours[MOST_NODES], float(c.open.sum()))
    return n


@compiled
def close_node(c: LivesCluster, n: int, t: float) -> None:
    """A node goes, and its bill ends."""
    c.open[n] = False
    c.hours[NODE_HOURS] += counted(c.opened_s[n], t) / 3600.0


@compiled
def promise(c: LivesCluster, f: LivesFleet, p: int, t: float) -> None:
    """Find a node that is being opened and has room for a pending pod, or open one."""
    for n in range(c.rows[0]):
        if c.open[n] and c.ready_s[n] > t:
            cores, gib = c.promised_cores[n] + f.cores[p], c.promised_gib[n] + f.gib[p]
            if cores <= NODE_CORES + _SLACK and gib <= NODE_GIB + _SLACK:
                break
    else:
        n = open_node(c, f, t)
    c.promised_cores[n] += f.cores[p]
    c.promised_gib[n] += f.gib[p]
    c.promised[p] = n


@compiled
def release(c: LivesCluster, f: LivesFleet, p: int, t: float) -> None:
    """A pending pod needs the node that was opened for it no longer."""
    n = c.promised[p]
    if n != NOWHERE and c.ready_s[n] > t:
        c.promised_cores[n] -= f.cores[p]
        c.promised_gib[n] -= f.gib[p]
    c.promised[p] = NOWHERE
