"""Two days of pods through one policy, in compiled code."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.lives.cluster import (
    MOVED,
    NOWHERE,
    LivesCluster,
    LivesFleet,
    advance,
    close_node,
    first_to_end,
    fits,
    look_ahead,
    promise,
    put,
    release,
    take,
)
from tiphys_models.placement.sim.lives.decide import LIFETIME_POINTS, LIFETIMES, Known, LivesRule, choose, learn_end, look_at, refresh
from tiphys_models.placement.sim.lives.world import DAY_S, DAYS, NODE_CORES, NODE_GIB

_NEVER = np.inf
_END_S = DAYS * DAY_S
LITTLE = 0.3
"""A node with no more than this share of its cores and memory requested may be emptied by force."""


@compiled
def candidates(c: LivesCluster, f: LivesFleet, p: int, t: float, without: int) -> IntArray:
    """Nodes that are ready and have room for a pod."""
    rows = np.empty(c.rows[0], np.int64)
    count = 0
    for n in range(c.rows[0]):
        if c.open[n] and n != without and c.ready_s[n] <= t and fits(c, f, n, p):
            rows[count] = n
            count += 1
    return rows[:count]


@compiled
def place(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, p: int, t: float) -> bool:
    """Start a pod now, if there is room anywhere."""
    rows = candidates(c, f, p, t, NOWHERE)
    if len(rows) == 0:
        return False
    if rule.kind == LIFETIMES or rule.kind == LIFETIME_POINTS:
        refresh(c, f, known, t)
    n = choose(c, f, known, rule, rows, p, t)
    put(c, f, n, p, t)
    if rule.kind == LIFETIMES:
        look_at(c, f, known, n, t)
    return True


@compiled
def look_again(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, pending: IntArray, count: int, t: float) -> int:
    """Pending pods, oldest first; how many remain. One whose node was given to another waits for a further one."""
    left = 0
    for i in range(count):
        p = pending[i]
        if place(c, f, known, rule, p, t):
            release(c, f, p, t)
            continue
        if c.ready_s[c.promised[p]] <= t:
            promise(c, f, p, t)
        pending[left] = p
        left += 1
    return left


@compiled
def consolidate(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, t: float) -> None:
    """Empty nodes that have little on them, and services only, onto nodes that are there; a pod goes on where it goes."""
    for n in range(c.rows[0]):
        little = c.cores[n] <= LITTLE * NODE_CORES and c.gib[n] <= LITTLE * NODE_GIB
        if not (c.open[n] and c.ready_s[n] <= t and c.running[n] > 0 and little):
            continue
        there = c.pods[n, : c.running[n]].copy()
        movable = True
        for p in there:
            movable = movable and not f.works[p]
        for i in range(len(there)):
            rows = candidates(c, f, there[i], t, n) if movable else np.zeros(0, np.int64)
            if len(rows) == 0:
                break
            to = choose(c, f, known, rule, rows, there[i], t)
            if c.running[to] == 0:  # nothing is won by filling an empty one
                break
            began_s = c.started_s[there[i]]
            take(c, f, n, there[i], t)
            put(c, f, to, there[i], t)
            c.started_s[there[i]] = began_s  # it has lived since then, wherever
            look_ahead(c, f, to)
            c.hours[MOVED] += 1.0


@compiled
def pod_ends(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, n: int, t: float) -> None:
    """The next pod of a node ends."""
    p = first_to_end(c, f, n)
    learn_end(c, f, known, p, t)
    take(c, f, n, p, t)
    c.ended_s[p] = t
    if rule.kind == LIFETIMES:
        look_at(c, f, known, n, t)


@compiled
def nodes_ready(c: LivesCluster, t: float) -> None:
    """Promises of nodes that are ready now are fulfilled, or broken."""
    for n in range(c.rows[0]):
        if c.open[n] and c.ready_s[n] == t:
            c.promised_cores[n], c.promised_gib[n] = 0.0, 0.0


@compiled
def next_of_nodes(c: LivesCluster, f: LivesFleet, waiting: int) -> tuple[float, int, float, float, int]:
    """When a pod ends and where, when a node is ready that somebody waits for, when an empty one goes and which."""
    end_s, ready_s, empty_s = _NEVER, _NEVER, _NEVER
    ending, emptied = NOWHERE, NOWHERE
    for n in range(c.rows[0]):
        if not c.open[n]:
            continue
        if c.next_s[n] < end_s:
            end_s, ending = c.next_s[n], n
        if waiting > 0 and c.promised_cores[n] > 0.0:
            ready_s = min(ready_s, c.ready_s[n])
        if c.empty_s[n] + f.linger_s < empty_s:
            empty_s, emptied = c.empty_s[n] + f.linger_s, n
    return end_s, ending, ready_s, empty_s, emptied


@compiled
def run_days(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule) -> None:
    """All pods in order of arrival, until the second day ends."""
    pending = np.empty(len(f.arrival_s), np.int64)
    waiting = 0
    k = 0
    consolidate_s = f.consolidate_s
    while True:
        arrival_s = f.arrival_s[k] if k < len(f.arrival_s) else _NEVER
        end_s, ending, ready_s, empty_s, emptied = next_of_nodes(c, f, waiting)
        t = min(arrival_s, end_s, ready_s, empty_s, consolidate_s)
        if t >= _END_S:
            break
        if end_s == t:
            pod_ends(c, f, known, rule, ending, t)
        elif ready_s == t:
            nodes_ready(c, t)
        elif arrival_s == t:
            if not place(c, f, known, rule, k, t):
                promise(c, f, k, t)
                pending[waiting] = k
                waiting += 1
            k += 1
            continue
        elif empty_s == t:
            close_node(c, emptied, t)
            continue
        else:
            consolidate(c, f, known, rule, t)
            consolidate_s += f.consolidate_s
        waiting = look_again(c, f, known, rule, pending, waiting, t)
    for n in range(c.rows[0]):
        if c.open[n]:
            advance(c, f, n, _END_S)
            close_node(c, n, _END_S)
