"""Containers of one node: who gets one, which one gives way."""

from __future__ import annotations

from tiphys_models.lab.compiled import inlined
from tiphys_models.placement.sim.cluster import IDLE, INIT, NEVER, RUN, SimulatedCluster, SimulatedFleet


@inlined
def remove(c: SimulatedCluster, g: SimulatedFleet, n: int, s: int) -> None:
    """Take container s off node n; the last one moves into its place."""
    node = c.nodes[n]
    node.pool -= g.functions[c.slots[n, s].holds].memory
    node.containers -= 1
    if s != node.containers:
        c.slots[n, s] = c.slots[n, node.containers]


@inlined
def expire(c: SimulatedCluster, g: SimulatedFleet, n: int, t: float) -> None:
    """Remove containers that have been idle for longer than the keep-alive."""
    s = 0
    while s < c.nodes[n].containers:
        slot = c.slots[n, s]
        if slot.kind == IDLE and t - slot.since > g.keep_alive_s:
            remove(c, g, n, s)
        else:
            s += 1


@inlined
def image_there_s(c: SimulatedCluster, g: SimulatedFleet, n: int, f: int, t: float) -> float:
    """When the function's image is on node n for a container that wants to start now: one pull after the other, the oldest images go."""
    if g.image_mib == 0.0:
        return t
    images = c.images[n]
    images[f].used_s = t
    if images[f].there_s < NEVER:
        there_s: float = max(t, images[f].there_s)
        return there_s
    kept = g.image_mib
    for other in range(len(images)):
        if images[other].there_s < NEVER:
            kept += g.image_mib
    while kept > g.images_kept_mib:
        oldest = -1
        for other in range(len(images)):
            if images[other].there_s < NEVER and (oldest < 0 or images[other].used_s < images[oldest].used_s):
                oldest = other
        if oldest < 0:
            break
        images[oldest].there_s = NEVER
        kept -= g.image_mib
    node = c.nodes[n]
    node.pulled_s = max(node.pulled_s, t) + g.image_mib / g.pull_mib_per_s
    pulled_s: float = node.pulled_s
    images[f].there_s = pulled_s
    return pulled_s


@inlined
def begin(c: SimulatedCluster, g: SimulatedFleet, n: int, k: int, t: float) -> bool:
    """Give call k a container on node n if there is one to have."""
    node = c.nodes[n]
    f = g.function[k]
    wanted = g.functions[f]
    best = -1
    for s in range(node.containers):
        # the one that became idle last: the others may then be removed sooner
        if c.slots[n, s].kind == IDLE and c.slots[n, s].holds == f and (best < 0 or c.slots[n, s].since > c.slots[n, best].since):
            best = s
    if best >= 0:
        slot = c.slots[n, best]
        slot.kind = RUN
        slot.call = k
        slot.left = wanted.warm_work * g.noise[k]
    else:
        idle = 0.0
        for s in range(node.containers):
            if c.slots[n, s].kind == IDLE:
                idle += g.functions[c.slots[n, s].holds].memory
        if node.capacity - node.pool + idle < wanted.memory:
            return False
        while node.capacity - node.pool < wanted.memory:
            oldest = -1
            for s in range(node.containers):
                if c.slots[n, s].kind == IDLE and (oldest < 0 or c.slots[n, s].since < c.slots[n, oldest].since):
                    oldest = s
            remove(c, g, n, oldest)
        slot = c.slots[n, node.containers]
        node.containers += 1
        node.pool += wanted.memory
        slot.kind = INIT
        slot.holds = f
        slot.call = k
        slot.left = image_there_s(c, g, n, f, t) + wanted.init_s / node.speed
        slot.rate = 0.0
        node.reads += wanted.disk_reads_cold
    node.received += wanted.net_received
    if n < len(c.nodes) - 1:
        c.calls[k].start_s = c.calls[k].ready_s = t
        c.calls[k].cold = best < 0
    return True
