"""Two days of pods through one policy, in compiled code."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.lives.cluster import (
    MOVED, NOWHERE, Cluster, Fleet, advance, close_node, first_to_end, fits, open_node, promise, put, release, take,
)
from tiphys_models.placement.sim.lives.decide import LIFETIME_POINTS, LIFETIMES, Known, LivesRule, choose, learn_end, look_at, refresh
from tiphys_models.placement.sim.lives.world import DAY_S, DAYS, NODE_CORES, NODE_GIB

_NEVER = np.inf
_END_S = DAYS * DAY_S
LITTLE = 0.3
"""A node with no more than this share of its cores and memory requested may be emptied by force."""


@compiled
def candidates(c: Cluster, f: Fleet, p: int, t: float, without: int) -> IntArray:
    """Nodes that are ready and have room for a pod."""
    rows = np.empty(len(c.open), np.int64)
    count = 0
    for n in range(len(c.open)):
        if c.open[n] and n != without and c.ready_s[n] <= t and fits(c, f, n, p):
            rows[count] = n
            count += 1
    return rows[:count]


@compiled
def place(c: Cluster, f: Fleet, known: Known, rule: LivesRule, p: int, t: float) -> bool:
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
def look_again(c: Cluster, f: Fleet, known: Known, rule: LivesRule, pending: IntArray, count: int, t: float) -> int:
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
def consolidate(c: Cluster, f: Fleet, known: Known, rule: LivesRule, t: float) -> None:
    """Empty nodes that have little on them, and services only, onto nodes that are there; a pod goes on where it goes."""
    for n in range(len(c.open)):
        little = c.cores[n] <= LITTLE * NODE_CORES and c.gib[n] <= LITTLE * NODE_GIB
        if not (c.open[n] and c.ready_s[n] <= t and c.count[n] > 0 and little):
            continue
        there = c.pods[n, : c.count[n]].copy()
        movable = True
        for p in there:
            movable = movable and not f.works[p]
        for i in range(len(there)):
            rows = candidates(c, f, there[i], t, n) if movable else np.zeros(0, np.int64)
            if len(rows) == 0:
                break
            to = choose(c, f, known, rule, rows, there[i], t)
            if c.count[to] == 0:  # nothing is won by filling an empty one
                break
            began_s = c.started_s[there[i]]
            take(c, f, n, there[i], t)
            put(c, f, to, there[i], t)
            c.started_s[there[i]] = began_s
            c.hours[MOVED] += 1.0


@compiled
def run_days(c: Cluster, f: Fleet, known: Known, rule: LivesRule) -> None:
    """All pods in order of arrival, until the second day ends."""
    pods = len(f.arrival_s)
    pending = np.empty(pods, np.int64)
    waiting = 0
    k = 0
    consolidate_s = f.consolidate_s
    while True:
        arrival_s = f.arrival_s[k] if k < pods else _NEVER
        end_s, ready_s, empty_s = _NEVER, _NEVER, _NEVER
        ending, emptied = NOWHERE, NOWHERE
        for n in range(len(c.open)):
            if not c.open[n]:
                continue
            if c.next_s[n] < end_s:
                end_s, ending = c.next_s[n], n
            if waiting > 0 and c.promised_cores[n] > 0.0:
                ready_s = min(ready_s, c.ready_s[n])
            if c.empty_s[n] + f.linger_s < empty_s:
                empty_s, emptied = c.empty_s[n] + f.linger_s, n
        t = min(min(arrival_s, end_s), min(min(ready_s, empty_s), consolidate_s))
        if t >= _END_S:
            break
        if end_s == t:
            p = first_to_end(c, f, ending)
            learn_end(c, f, known, p, t)
            take(c, f, ending, p, t)
            if rule.kind == LIFETIMES:
                look_at(c, f, known, ending, t)
            c.ended_s[p] = t
            waiting = look_again(c, f, known, rule, pending, waiting, t)
        elif ready_s == t:
            for n in range(len(c.open)):
                if c.open[n] and c.ready_s[n] == t:
                    c.promised_cores[n], c.promised_gib[n] = 0.0, 0.0
            waiting = look_again(c, f, known, rule, pending, waiting, t)
        elif arrival_s == t:
            if not place(c, f, known, rule, k, t):
                promise(c, f, k, t)
                pending[waiting] = k
                waiting += 1
            k += 1
        elif empty_s == t:
            close_node(c, emptied, t)
        else:
            consolidate(c, f, known, rule, t)
            waiting = look_again(c, f, known, rule, pending, waiting, t)
            consolidate_s += f.consolidate_s
    for n in range(len(c.open)):
        if c.open[n]:
            advance(c, f, n, _END_S)
            close_node(c, n, _END_S)
