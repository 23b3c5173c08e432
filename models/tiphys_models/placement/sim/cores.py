"""How a node's cores are divided, and what time does to the calls on it."""

from __future__ import annotations

import numpy as np

from tiphys_models.lab.compiled import inlined
from tiphys_models.placement.sim.cluster import CAPPED, INIT, NEVER, RUN, SimulatedCluster, SimulatedFleet

_LOAD_S = 60.0


@inlined
def move(c: SimulatedCluster, n: int, t: float) -> None:
    """Let node n work until t at its present shares; nothing starts or ends."""
    node = c.nodes[n]
    step = t - node.seen_s
    if step <= 0:
        return
    for s in range(node.containers):
        slot = c.slots[n, s]
        if slot.kind == RUN:
            slot.left -= slot.rate * step
    node.busy += node.used_cores * step
    node.switches += (100.0 + 400.0 * node.threads) * step
    decay = np.exp(-step / _LOAD_S)
    node.load = node.load * decay + node.threads * (1.0 - decay)
    node.seen_s = t


@inlined
def share(c: SimulatedCluster, g: SimulatedFleet, n: int) -> None:
    """Divide the cores of node n anew and find out when its next event is."""
    node = c.nodes[n]
    running = 0
    wanted = 0.0
    weight = 0.0
    next_s = NEVER
    for s in range(node.containers):
        slot = c.slots[n, s]
        if slot.kind == RUN:
            running += 1
            f = g.functions[slot.holds]
            wanted += f.parallelism
            weight += f.memory
            slot.rate = -1.0
        elif slot.kind == INIT:
            next_s = min(next_s, slot.left)
    node.threads = wanted
    left = node.cores
    if g.sharing == CAPPED:
        for s in range(node.containers):
            slot = c.slots[n, s]
            if slot.kind == RUN:
                f = g.functions[slot.holds]
                slot.rate = min(f.parallelism, node.cores * f.memory / node.capacity)
    elif wanted <= left:
        for s in range(node.containers):
            slot = c.slots[n, s]
            if slot.kind == RUN:
                slot.rate = g.functions[slot.holds].parallelism
    else:
        open_calls = running
        again = True
        while again and open_calls > 0:
            again = False
            unit = left / weight
            for s in range(node.containers):
                slot = c.slots[n, s]
                if slot.kind == RUN and slot.rate < 0:
                    f = g.functions[slot.holds]
                    if f.parallelism <= unit * f.memory:
                        slot.rate = f.parallelism
                        left -= f.parallelism
                        weight -= f.memory
                        open_calls -= 1
                        again = True
        if open_calls > 0:
            unit = left / weight
            for s in range(node.containers):
                slot = c.slots[n, s]
                if slot.kind == RUN and slot.rate < 0:
                    slot.rate = unit * g.functions[slot.holds].memory
    slower = 1.0 / (1.0 + g.interference * max(running - 1, 0))
    used = 0.0
    for s in range(node.containers):
        slot = c.slots[n, s]
        if slot.kind == RUN:
            slot.rate *= slower
            used += slot.rate
            slot.rate *= node.speed
            next_s = min(next_s, node.seen_s + max(slot.left, 0.0) / slot.rate)
    node.used_cores = used
    node.next_s = next_s
