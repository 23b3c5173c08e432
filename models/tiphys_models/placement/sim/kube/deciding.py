"""Decisions under Kubernetes' filter: the served policies' own arithmetic, compiled, and the policies that only the simulator plays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement import estimator, learned_profiles, residual, waiting
from tiphys_models.placement.learned_profiles import ENDED, ENOUGH
from tiphys_models.placement.patient import WAITS_WEIGHTS
from tiphys_models.placement.residual import MOST_ADDED, MOST_TRUST, NODE_INPUTS, WAIT_INPUTS
from tiphys_models.placement.sim import decide
from tiphys_models.placement.sim.cluster import SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.decide import CompiledRule, choose, encode_seen, fallback_scores, falls_back, judge, rule_scores
from tiphys_models.placement.sim.kube.belief import Belief, is_listed
from tiphys_models.placement.sim.observe import NodeSamples
from tiphys_models.placement.waiting import SURE

KUBE_DEFAULT, MOST_ALLOCATED, BOOKS, WAITS, LINEAR, LINEAR_WAITS, ESTIMATOR, ESTIMATOR_NETWORK = range(100, 108)
_POD_MILLI = 100.0
"""What kube-scheduler's scores take for a pod that asks for no processor."""
NOT_YET, NOWHERE = -1, -2

_crowding = compiled(estimator.crowding)
_expected_rests = compiled(estimator.expected_rests)
_placement_costs = compiled(estimator.placement_costs)
_saved_by_warmth = compiled(learned_profiles.saved_by_warmth)
_awaited_s = compiled(waiting.awaited_s)
_least_share_left = compiled(learned_profiles.least_share_left)
_forward = compiled(residual.forward)
_node_inputs = compiled(residual.node_inputs)
_wait_inputs = compiled(residual.wait_inputs)
_bounded = compiled(residual.bounded)
_warm_first = decide._warm_first
_NODE, _WAIT = len(NODE_INPUTS), len(WAIT_INPUTS)


class KubeRule(NamedTuple):
    """A policy as compiled code wants it under Kubernetes' filter."""

    kind: int
    epsilon: float
    weights: FloatArray
    """Of LINEAR: six. Of WAITS: two. Of LINEAR_WAITS: four and two. Of ESTIMATOR_NETWORK: both heads, one after the other."""
    longest_s: float
    """How long a call is held at the most."""
    guarded: bool
    """Whether functions of which too little is known are placed by the books alone."""
    least_share: float
    """Share of its time that an overdue call has still to go; negative: as learned."""
    scraped: CompiledRule
    """The policy for scraped readings, where `kind` is below 100."""


class Outlook(NamedTuple):
    """What a decision looks at, of the candidates only."""

    warm: FloatArray
    costs: FloatArray
    """[candidates, 4] of `estimator.placement_costs`."""
    work_left: FloatArray
    """Core-seconds still to do over cores."""
    same: FloatArray
    """Open calls of the function."""
    same_rests_s: FloatArray
    """Of every open call of the function, on any node."""


@compiled
def outlook(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, rows: IntArray, place: IntArray, f: int, t: float, least: float
) -> Outlook:
    """What a placement of function f would mean for each candidate, as believed at t."""
    nodes = len(c.nodes) - 1
    count = seen.open_count[0]
    row = np.empty(count, np.int64)
    age = np.empty(count)
    start = np.empty(count)
    run = np.empty(count)
    used = np.empty(count)
    work = np.empty(count)
    same = np.empty(count, np.bool_)
    for i in range(count):
        k = seen.open_calls[i]
        of = g.function[k]
        profile = b.believed[of]
        row[i] = c.calls[k].node
        age[i] = t - seen.placed_s[k]
        speed = b.speed[row[i]]
        start[i] = profile[0] / speed if b.cold[k] else 0.0
        work[i] = profile[2] if b.cold[k] else profile[1]
        run[i] = work[i] / profile[3] / speed
        used[i] = profile[3]
        same[i] = of == f
    rests = _expected_rests(_crowding(c.nodes.cores[:nodes].copy(), row, used)[row], age, start, run, least)
    here = np.empty(count, np.bool_)
    for i in range(count):
        here[i] = place[row[i]] >= 0
    on = place[row[here]]
    memory = g.functions.memory
    value = np.zeros(len(rows))
    warm = np.zeros(len(rows), np.bool_)
    for i in range(len(rows)):
        n = rows[i]
        warm[i] = is_listed(b, n, f)
        for s in range(b.listed[n]):
            value[i] += _saved_by_warmth(b.believed[b.function[n, s]])
    cores = c.nodes.cores[:nodes][rows]
    spare = c.nodes.capacity[:nodes][rows] - seen.inflight_memory[rows] - b.idle_bytes[rows]
    costs = _placement_costs(
        cores, spare, b.idle_bytes[rows], value, warm, b.speed[rows], on, rests[here, 0].copy(), used[here], b.believed[f], memory[f]
    )
    left = np.bincount(on, (work * rests[:, 1])[here], len(rows)) / cores
    return Outlook(warm * 1.0, costs, left, np.bincount(on, same[here] * 1.0, len(rows)) * 1.0, rests[same, 0].copy())


@compiled
def head_at(weights: FloatArray, at: int, inputs: int, units: int, rows: FloatArray) -> FloatArray:
    """What the head says whose numbers begin there: the straight way, the hidden layer, its bias, the way out."""
    hidden = at + inputs
    bias = hidden + inputs * units
    return _forward(
        rows, weights[at:hidden], weights[hidden:bias].copy().reshape(inputs, units), weights[bias : bias + units],
        weights[bias + units : bias + 2 * units],
    )  # fmt: skip


@compiled
def units_of(weights: FloatArray) -> int:
    """How many hidden units each of the two heads has."""
    return (len(weights) - _NODE - _WAIT) // (_NODE + _WAIT + 4)


@compiled
def own_runs(b: Belief, rows: IntArray, warm: FloatArray, f: int) -> FloatArray:
    """Seconds that function f runs on each candidate if nothing crowds it."""
    runs: FloatArray = np.where(warm > 0, b.believed[f, 1], b.believed[f, 2]) / b.believed[f, 3] / b.speed[rows]
    return runs


@compiled
def memory_shares(c: SimulatedCluster, seen: NodeSamples, b: Belief, rows: IntArray) -> FloatArray:
    """[2, candidates]: memory of open calls and idle instances over the node's, and of open calls alone."""
    shares = np.empty((2, len(rows)))
    for i in range(len(rows)):
        n = rows[i]
        shares[0, i] = (seen.inflight_memory[n] + b.idle_bytes[n]) / c.nodes[n].capacity
        shares[1, i] = seen.inflight_memory[n] / c.nodes[n].capacity
    return shares


@compiled
def mended_scores(c: SimulatedCluster, seen: NodeSamples, b: Belief, rule: KubeRule, rows: IntArray, o: Outlook, f: int) -> FloatArray:
    """The estimator's scores, mended by the network."""
    saved = _saved_by_warmth(b.believed[f])
    shares = memory_shares(c, seen, b, rows)
    cores = c.nodes.cores[: len(c.nodes) - 1][rows]
    inputs = _node_inputs(o.costs, own_runs(b, rows, o.warm, f), o.warm, o.work_left, o.same / cores, shares[0], shares[1], saved)
    added = _bounded(head_at(rule.weights, 0, _NODE, units_of(rule.weights), inputs), MOST_ADDED)
    scores: FloatArray = -(o.costs.sum(axis=1) + saved * added)
    return scores


@compiled
def trust(
    c: SimulatedCluster,
    seen: NodeSamples,
    b: Belief,
    rule: KubeRule,
    rows: IntArray,
    o: Outlook,
    f: int,
    best: int,
    gain: float,
    before: int,
) -> float:
    """What the network multiplies trust in waiting by."""
    units = units_of(rule.weights)
    profile = b.believed[f]
    run = own_runs(b, rows, o.warm, f)[best]
    filled = memory_shares(c, seen, b, rows)[0].mean()
    awaited = _awaited_s(o.same_rests_s, before)
    saved = _saved_by_warmth(profile)
    inputs = _wait_inputs(o.costs[best], run, filled, saved, profile[1] / profile[3], awaited, gain, before, len(o.same_rests_s))
    said = head_at(rule.weights, _NODE * (1 + units) + 2 * units, _WAIT, units, inputs)
    return float(np.exp(_bounded(said, MOST_TRUST)[0]))


@compiled
def kube_scores(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rule: KubeRule, rows: IntArray, f: int) -> FloatArray:
    """Scores of kube-scheduler's LeastAllocated with BalancedAllocation, or of MostAllocated alone."""
    scores = np.empty(len(rows))
    for i in range(len(rows)):
        n = rows[i]
        cpu = min((seen.inflight[n] + 1.0) * _POD_MILLI / (c.nodes[n].cores * 1000.0), 1.0)
        memory = min((seen.inflight_memory[n] + g.functions[f].memory) / c.nodes[n].capacity, 1.0)
        if rule.kind == MOST_ALLOCATED:
            scores[i] = np.floor(50.0 * (cpu + memory))
        else:
            scores[i] = np.floor(50.0 * (2.0 - cpu - memory)) + np.floor(100.0 * (1.0 - abs(cpu - memory) / 2.0))
    return scores


@compiled
def decide_one(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, rule: KubeRule, k: int, before: int, t: float,
    name_hash: HashArray, uid_hash: HashArray,
) -> int:  # fmt: skip
    """Where call k goes now: a node, NOT_YET, or NOWHERE; `before` calls of its function wait in front of it."""
    nodes = len(c.nodes) - 1
    f = g.function[k]
    wanted = g.functions[f].memory
    place = np.full(nodes, -1, np.int64)
    rows = np.empty(nodes, np.int64)
    count = 0
    for n in range(nodes):
        if c.nodes[n].capacity - seen.inflight_memory[n] >= wanted:
            place[n] = count
            rows[count] = n
            count += 1
    rows = rows[:count]
    if count == 0:
        return NOWHERE
    epsilon = rule.epsilon
    if rule.kind < KUBE_DEFAULT:
        if falls_back(g, rule.scraped, k):
            scores = fallback_scores(c, g, seen, rows, k)
            epsilon = decide.FALLBACK_EPSILON
        elif rule.kind == decide.NETWORK:
            scores = judge(seen, rule.scraped, rows, encode_seen(c, g, seen, rows, place, k, t, rule.scraped.inputs))
        else:
            scores = rule_scores(c, g, seen, rule.scraped, rows, k, t)
        return int(rows[choose(scores, name_hash[rows], uid_hash[k], epsilon)])
    if rule.kind <= MOST_ALLOCATED:
        return int(rows[choose(kube_scores(c, g, seen, rule, rows, f), name_hash[rows], uid_hash[k], epsilon)])
    least = rule.least_share if rule.least_share >= 0 else _least_share_left(b.learned)
    o = outlook(c, g, seen, b, rows, place, f, t, least)
    saved = _saved_by_warmth(b.believed[f])
    undeclared = rule.guarded and b.prior_calls[f] < 1.0
    unknown = undeclared and b.learned[f, ENDED] < ENOUGH
    blind = rule.kind in (ESTIMATOR, ESTIMATOR_NETWORK) and undeclared and not unknown and b.measured[f] < ENOUGH
    by_books = rule.kind in (BOOKS, WAITS) or unknown or blind
    if by_books:
        scores = _warm_first(o.warm, np.zeros(count, np.bool_), seen.inflight[rows], c.nodes.cores[:nodes][rows])
        epsilon = decide.FALLBACK_EPSILON
        if rule.kind == BOOKS:
            bar = -np.inf
        elif rule.kind == WAITS:
            bar = rule.weights[0] * saved + rule.weights[1]
        elif blind:
            bar = WAITS_WEIGHTS[0] * saved + WAITS_WEIGHTS[1]
        else:
            bar = saved
    elif rule.kind == ESTIMATOR:
        scores = -o.costs.sum(axis=1)
        bar = SURE * (-scores.max() - b.believed[f, 1] / b.believed[f, 3])
    elif rule.kind == ESTIMATOR_NETWORK:
        scores = mended_scores(c, seen, b, rule, rows, o, f)
        bar = SURE * (-scores.max() - b.believed[f, 1] / b.believed[f, 3])
    else:
        run = np.where(o.warm > 0, b.believed[f, 1], b.believed[f, 2]) / b.believed[f, 3]
        crowd = o.costs[:, 1] - run
        lost = o.costs[:, 3]
        w = rule.weights
        if rule.kind == LINEAR:
            load = (seen.inflight[rows] + 1.0) / c.nodes.cores[:nodes][rows]
            scores = w[0] * saved * o.warm + w[1] * o.work_left + w[2] * crowd + w[3] * lost + w[4] * o.same + w[5] * load
            bar = -np.inf
        else:
            scores = saved * o.warm + w[0] * o.work_left + w[1] * crowd + w[2] * lost + w[3] * o.same
            bar = w[4] * saved + w[5]
    best = choose(scores, name_hash[rows], uid_hash[k], epsilon)
    if rule.kind == ESTIMATOR_NETWORK and not by_books and bar > 0 and o.warm[best] == 0 and len(o.same_rests_s) > before:
        bar *= trust(c, seen, b, rule, rows, o, f, best, bar / SURE, before)
    held = not np.isnan(b.held_s[k])
    if o.warm[best] == 0 and bar > 0 and (not held or t - b.held_s[k] < rule.longest_s) and _awaited_s(o.same_rests_s, before) < bar:
        return NOT_YET
    return int(rows[best])
