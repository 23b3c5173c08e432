"""Decisions of the simulator: what is seen becomes a node, by the served policies' own arithmetic, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.artifacts.forward import score_rows
from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement import kernels
from tiphys_models.placement.outlook import WIDTH, add_outlook, base_rows
from tiphys_models.placement.rank import mixed_ties, sort_key
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.cluster import SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.foresight import marginal_cost
from tiphys_models.placement.sim.observe import NodeSamples

FALLBACK_EPSILON = WarmFirst().epsilon
HASHING, ROUND_ROBIN, LEAST_CONNECTIONS, GREEDY, STATIC_RANK, WARM_FIRST, NETWORK, CLAIRVOYANT, GREEDY_STAY = range(9)

_hashing = compiled(kernels.hashing)
_round_robin = compiled(kernels.round_robin)
_least_connections = compiled(kernels.least_connections)
_greedy = compiled(kernels.greedy)
_static_rank = compiled(kernels.static_rank, scaled=compiled(kernels.scaled))
_warm_first = compiled(kernels.warm_first)
_base_rows = compiled(base_rows)
_add_outlook = compiled(add_outlook)
_score_rows = compiled(score_rows)
_mixed_ties = compiled(mixed_ties)
_sort_key = compiled(sort_key)


class CompiledRule(NamedTuple):
    """A policy as compiled code wants it. Fields that a kind does not use are empty."""

    kind: int
    epsilon: float
    weights: FloatArray
    """Weights of the policy static-rank."""
    home: IntArray
    """[functions, nodes + 1] of hashing, for every number of nodes that may be there; then the inverse of its step."""
    step_inverse: IntArray
    inputs: int
    """Number of inputs of the network: 26 or more."""
    mean: FloatArray
    scale: FloatArray
    clip: float
    weight_0: FloatArray
    bias_0: FloatArray
    weight_1: FloatArray
    bias_1: FloatArray
    weight_2: FloatArray
    bias_2: FloatArray


@compiled
def encode_seen(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rows: IntArray, place: IntArray, k: int, t: float, inputs: int
) -> FloatArray:
    """The network's inputs for call k at t: `rows` are the candidates, `place` says where each node stands among them."""
    f = g.function[k]
    inflight_memory = seen.inflight_memory[rows]
    capacity = c.nodes.capacity[rows]
    idle = seen.idle[f][rows]
    encoded = _base_rows(
        seen.readings[rows], capacity - inflight_memory, seen.inflight[rows], idle, g.functions[f].memory, g.functions[f].init_s, inputs
    )
    if inputs == WIDTH:
        count = 0
        for i in range(seen.open_count[0]):
            count += place[c.calls[seen.open_calls[i]].node] >= 0
        open_row = np.empty(count, np.int64)
        age = np.empty(count)
        alone = np.empty(count)
        work = np.empty(count)
        parallelism = np.empty(count)
        memory = np.empty(count)
        same = np.empty(count, np.bool_)
        i = -1
        for each in range(seen.open_count[0]):
            other = seen.open_calls[each]
            if place[c.calls[other].node] < 0:
                continue  # its node is no candidate
            i += 1
            of = g.function[other]
            profile = g.profiles[of]
            cold = 0 if seen.open_warm[other] else 1
            open_row[i] = place[c.calls[other].node]
            age[i] = t - seen.placed_s[other]
            work[i] = profile[2 + cold]
            alone[i] = profile[cold]
            parallelism[i] = profile[4]
            memory[i] = g.functions[of].memory
            same[i] = of == f
        idle_memory = np.zeros(len(rows))
        for other in range(len(g.functions)):
            idle_memory += seen.idle[other][rows] * g.functions[other].memory
        age_of_reading = t - seen.sample_s[rows]
        _add_outlook(
            encoded, c.nodes.cores[rows], capacity, age_of_reading, inflight_memory, idle, idle_memory, g.functions[f].memory,
            g.profiles[f], open_row, age, alone, work, parallelism, memory, same,
        )  # fmt: skip
    return encoded


@compiled
def network_scores(rule: CompiledRule, encoded: FloatArray) -> FloatArray:
    """The served network's forward pass."""
    return _score_rows(
        encoded, rule.mean, rule.scale, rule.clip, rule.weight_0, rule.bias_0, rule.weight_1, rule.bias_1, rule.weight_2, rule.bias_2
    )  # fmt: skip


@compiled
def judge(seen: NodeSamples, rule: CompiledRule, rows: IntArray, encoded: FloatArray) -> FloatArray:
    """Those scores, and for nodes without any reading the median of the others: a node nobody can judge ranks in the middle."""
    scores = network_scores(rule, encoded)
    known = np.empty(len(rows), np.bool_)
    for i in range(len(rows)):
        known[i] = not np.isnan(seen.readings[rows[i]]).all()
    if not known.all():
        scores = np.where(known, scores, np.median(scores[known]) if known.any() else 0.0)
    return scores


@compiled
def rule_scores(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rule: CompiledRule, rows: IntArray, k: int, t: float
) -> FloatArray:
    """One score a candidate, by any policy but a network."""
    f = g.function[k]
    known = len(rows)
    position = np.arange(known)
    wanted = g.functions[f].memory
    if rule.kind == LEAST_CONNECTIONS:
        return _least_connections(seen.inflight[rows])
    if rule.kind == WARM_FIRST:
        return _warm_first(seen.idle[f][rows], np.zeros(known, np.bool_), seen.inflight[rows], c.nodes.cores[rows])
    if rule.kind == ROUND_ROBIN or rule.kind == GREEDY_STAY:
        newest = -1
        for i in range(known):
            if rows[i] == seen.newest[0]:
                newest = i
        if rule.kind == ROUND_ROBIN:
            return _round_robin(position, newest, known)
        # the literal reading of the paper: stay until full, then go round; a comparator, not served
        available = c.nodes.capacity[rows] - seen.inflight_memory[rows]
        return _greedy((position - max(newest, 0)) % known, known, seen.inflight[rows], available, wanted)
    if rule.kind == GREEDY:
        return _greedy(position, known, seen.inflight[rows], c.nodes.capacity[rows] - seen.inflight_memory[rows], wanted)
    if rule.kind == HASHING:
        # OpenWhisk's balancer counts memory itself, at the moment a call ends
        return _hashing(
            position,
            known,
            rule.home[f, known],
            rule.step_inverse[f, known],
            c.nodes.capacity[rows] - c.nodes.inflight_memory[rows],
            wanted,
        )
    if rule.kind == STATIC_RANK:
        available = c.nodes.capacity[rows] - seen.inflight_memory[rows]
        return _static_rank(rule.weights, seen.readings[rows], c.nodes.cores[rows], seen.idle[f][rows], available, wanted)
    costs = np.empty(known)
    for i in range(known):
        costs[i] = marginal_cost(c, g, k, rows[i], t)
    return -costs


@compiled
def falls_back(g: SimulatedFleet, rule: CompiledRule, k: int) -> bool:
    """Whether the extender would leave call k to the fallback: the network reads profiles, and its function has none."""
    return rule.kind == NETWORK and rule.inputs == WIDTH and not g.profiled[g.function[k]]


@compiled
def fallback_scores(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rows: IntArray, k: int) -> FloatArray:
    """One score a candidate by warm-first, a SchedulingPolicy's fallback unless it names another."""
    return _warm_first(seen.idle[g.function[k]][rows], np.zeros(len(rows), np.bool_), seen.inflight[rows], c.nodes.cores[rows])


@compiled
def choose(scores: FloatArray, name_hash: HashArray, uid_hash: np.uint64, epsilon: float) -> int:
    """Select as the extender ranks: the best, equals by hash."""
    return int(np.argmin(_sort_key(scores, _mixed_ties(uid_hash, name_hash), epsilon)))
