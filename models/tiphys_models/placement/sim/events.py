"""What happens to a node: calls arrive, start, finish; the node dies."""

from __future__ import annotations

from tiphys_models.base.arrays import IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.cluster import IDLE, INIT, NEVER, RUN, SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.containers import begin, expire, remove
from tiphys_models.placement.sim.cores import move, share

_DONE = 1e-9
"""Core-seconds: what is left of a call that has finished, given the rounding of subtraction."""


@compiled
def settle(c: SimulatedCluster, g: SimulatedFleet, n: int, t: float) -> None:
    """Everything that is due on node n at t: starts that are ready, calls that are done, the queue behind them."""
    node = c.nodes[n]
    freed = False
    s = 0
    while s < node.containers:
        slot = c.slots[n, s]
        f = g.functions[slot.holds]
        if slot.kind == INIT and slot.left <= t:
            slot.kind = RUN
            slot.left = f.cold_work * g.noise[slot.call]
            if n < len(c.nodes) - 1:
                c.calls[slot.call].ready_s = t
            s += 1
        elif slot.kind == RUN and slot.left <= _DONE * max(slot.rate, 1.0):
            freed = True
            node.inflight -= 1
            node.inflight_memory -= f.memory
            node.writes += f.disk_writes
            node.sent += f.net_sent
            node.finish_sum += t
            if n < len(c.nodes) - 1:
                c.calls[slot.call].finish_s = t
            if g.reuse:
                slot.kind = IDLE
                slot.call = -1
                slot.since = t
                slot.rate = 0.0
                s += 1
            else:
                remove(c, g, n, s)
        else:
            s += 1
    if freed:
        expire(c, g, n, t)
        while node.queued > 0 and begin(c, g, n, node.head, t):
            node.head = c.calls[node.head].behind
            node.queued -= 1
    share(c, g, n)


@compiled
def put(c: SimulatedCluster, g: SimulatedFleet, k: int, n: int, t: float) -> None:
    """Call k arrives at node n at t, everything before t having happened."""
    move(c, n, t)
    expire(c, g, n, t)
    node = c.nodes[n]
    node.inflight += 1
    node.inflight_memory += g.functions[g.function[k]].memory
    if n < len(c.nodes) - 1:
        c.calls[k].node = n
    if node.queued == 0 and begin(c, g, n, k, t):
        share(c, g, n)
        return
    c.calls[k].behind = -1
    if node.queued == 0:
        node.head = k
    else:
        c.calls[node.tail].behind = k
    node.tail = k
    node.queued += 1


@compiled
def advance(c: SimulatedCluster, g: SimulatedFleet, t: float) -> None:
    """Let the whole cluster run until t, events at t included."""
    for n in range(len(c.nodes) - 1):  # nodes do not touch each other between decisions
        while c.nodes[n].next_s <= t:
            at = c.nodes[n].next_s
            move(c, n, at)
            settle(c, g, n, at)


@compiled
def drain(c: SimulatedCluster, g: SimulatedFleet, n: int) -> None:
    """Let node n run until nothing is left on it."""
    while c.nodes[n].next_s < NEVER:
        at = c.nodes[n].next_s
        move(c, n, at)
        settle(c, g, n, at)


@compiled
def lose_node(c: SimulatedCluster, n: int, t: float, lost: IntArray) -> int:
    """Node n dies at t with all its containers; `lost` receives its unfinished calls, their number is returned."""
    node = c.nodes[n]
    count = 0
    for s in range(node.containers):
        if c.slots[n, s].kind != IDLE:
            lost[count] = c.slots[n, s].call
            count += 1
    k = node.head
    for _ in range(node.queued):
        lost[count] = k
        k = c.calls[k].behind
        count += 1
    node.containers = 0
    node.pool = 0.0
    node.queued = 0
    node.next_s = NEVER
    node.inflight = 0.0
    node.inflight_memory = 0.0
    node.threads = 0.0
    node.used_cores = 0.0
    node.load = 0.0
    node.seen_s = t
    node.alive = False
    return count
