"""One workload through one policy, start to last completion, in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.cluster import SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.decide import (
    FALLBACK_EPSILON,
    NETWORK,
    CompiledRule,
    choose,
    encode_seen,
    fallback_scores,
    falls_back,
    judge,
    rule_scores,
)
from tiphys_models.placement.sim.events import advance, drain, lose_node, put
from tiphys_models.placement.sim.foresight import marginal_cost
from tiphys_models.placement.sim.observe import NodeSamples, forget, publish, reserve, take_sample

ARGMAX, SAMPLE = 0, 1
_NEVER = np.inf


class Tape(NamedTuple):
    """What training wants to know about each decision; empty arrays record nothing."""

    uniform: FloatArray
    """[K] draws of the sampled choice."""
    inputs: FloatArray
    """Inputs of every decision and candidate, float32[K, N, inputs]."""
    chosen: IntArray
    log_p: FloatArray
    costs: FloatArray
    """[K, N] marginal costs of the clairvoyant, if asked for."""


class Script(NamedTuple):
    """Nodes that come and go: at `at_s[i]`, node `node[i]` joins or is lost."""

    at_s: FloatArray
    node: IntArray
    joins: BoolArray


@compiled
def decide_and_put(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rule: CompiledRule, tape: Tape, k: int, t: float, how: int,
    name_hash: HashArray, uid_hash: HashArray, rows: IntArray, place: IntArray,
) -> None:  # fmt: skip
    """Place call k now; everything up to t has happened."""
    epsilon = rule.epsilon
    if falls_back(g, rule, k):
        scores = fallback_scores(c, g, seen, rows, k)
        epsilon = FALLBACK_EPSILON
    elif rule.kind == NETWORK:
        encoded = encode_seen(c, g, seen, rows, place, k, t, rule.inputs)
        scores = judge(seen, rule, rows, encoded)
        if len(tape.inputs) > 0:
            tape.inputs[k, : len(rows)] = encoded
    else:
        scores = rule_scores(c, g, seen, rule, rows, k, t)
    if len(tape.costs) > 0:
        for i in range(len(rows)):
            tape.costs[k, i] = marginal_cost(c, g, k, rows[i], t)
    if how == SAMPLE:
        weights = np.exp(scores - scores.max())
        total = weights.sum()
        target = tape.uniform[k] * total
        best = 0
        reached = weights[0]
        while reached < target and best < len(rows) - 1:
            best += 1
            reached += weights[best]
        tape.log_p[k] = np.log(weights[best] / total)
    else:
        best = choose(scores, name_hash[rows], uid_hash[k], epsilon)
    if len(tape.chosen) > 0:
        tape.chosen[k] = best
    n = rows[best]
    reserve(c, g, seen, k, n, t)
    put(c, g, k, n, t)


@compiled
def move_to(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, t: float, period_s: float, delay_s: float) -> None:
    """Let time pass until t: events, samples on their period, publications after their delay."""
    while True:
        take_s = seen.due[0] * period_s
        show_s = seen.due[1] * period_s + delay_s
        if seen.due[1] < seen.due[0] and show_s <= t and show_s < take_s:
            publish(c, g, seen, seen.due[1] * period_s)
        elif take_s <= t:
            advance(c, g, take_s)
            take_sample(c, g, seen, take_s, period_s)
        else:
            break
    advance(c, g, t)


@compiled
def run_workload(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, rule: CompiledRule, tape: Tape, script: Script, how: int,
    name_hash: HashArray, uid_hash: HashArray, period_s: float, delay_s: float,
) -> None:  # fmt: skip
    """All calls in order of arrival, then until the cluster is empty."""
    nodes = len(c.nodes) - 1
    lost = np.empty(len(g.arrival_s), np.int64)
    rows = np.flatnonzero(c.nodes.alive[:nodes])
    place = np.arange(nodes)
    event = 0
    k = 0
    take_sample(c, g, seen, 0.0, period_s)  # the cluster has been idle, and everybody knows
    publish(c, g, seen, 0.0)
    while k < len(g.arrival_s) or event < len(script.at_s):
        arrival_s = g.arrival_s[k] if k < len(g.arrival_s) else _NEVER
        if event < len(script.at_s) and script.at_s[event] <= arrival_s:
            t = script.at_s[event]
            n = script.node[event]
            move_to(c, g, seen, t, period_s, delay_s)
            count = 0
            if script.joins[event]:
                c.nodes[n].alive = True
                c.nodes[n].seen_s = t
                seen.inflight[n] = 0.0
                seen.inflight_memory[n] = 0.0
                seen.readings[n] = np.nan  # until the next sample
                seen.sample_s[n] = np.nan
                seen.reported[:, n] = np.nan
                seen.taken[:, n] = 0.0
                seen.idle[:, n] = np.nan
            else:
                count = lose_node(c, n, t, lost)
                for i in range(count):
                    forget(g, seen, lost[i], n)
            rows = np.flatnonzero(c.nodes.alive[:nodes])
            for i in range(len(rows)):
                place[rows[i]] = i
            again = np.sort(lost[:count])  # calls are numbered by arrival
            for i in range(count):
                decide_and_put(c, g, seen, rule, tape, again[i], t, how, name_hash, uid_hash, rows, place)
            event += 1
        else:
            move_to(c, g, seen, arrival_s, period_s, delay_s)
            decide_and_put(c, g, seen, rule, tape, k, arrival_s, how, name_hash, uid_hash, rows, place)
            k += 1
    for n in range(nodes):
        drain(c, g, n)
