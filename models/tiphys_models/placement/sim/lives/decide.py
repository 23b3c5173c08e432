"""Decisions about long-lived pods: the served policies' own arithmetic, compiled, and comparators that only the simulator can run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.lab.compiled import compiled, inlined
from tiphys_models.placement import kernels, lifetimes
from tiphys_models.placement.lifetimes import BINS, BUSY, EDGES_S, POINTS
from tiphys_models.placement.rank import mixed_ties, sort_key
from tiphys_models.placement.sim.lives.cluster import LivesCluster, LivesFleet
from tiphys_models.placement.sim.lives.points import expected_rests, point_score, rests_at_edges, spreads, trust
from tiphys_models.placement.sim.lives.world import DAY_S, NODE_CORES, NODE_GIB

KUBE_DEFAULT, MOST_ALLOCATED, STATIC, LIFETIMES, LIFETIME_POINTS, TRUE_LIFETIMES = range(6)
STATIC_WEIGHTS = 6
REFRESH_S = 120.0
"""How often what is known of lifetimes is put together anew."""
_EPSILON = 1e-6

_hazards = compiled(lifetimes.hazards)
_survivals = compiled(lifetimes.survivals)
_survivals_at = compiled(lifetimes.survivals_at, bins_of=compiled(lifetimes.bins_of))
_chances_gone = compiled(lifetimes.chances_gone, survivals_at=_survivals_at)
_chance_empty = compiled(lifetimes.chance_empty)
_prolonged = compiled(lifetimes.prolonged)
_left_behind = compiled(lifetimes.left_behind)
_crowding = compiled(lifetimes.crowding)
_kept_share = compiled(lifetimes.kept_share)
_most_allocated = compiled(kernels.most_allocated)
_mixed_ties = compiled(mixed_ties)
_sort_key = compiled(sort_key)


class LivesRule(NamedTuple):
    """A policy as compiled code wants it."""

    kind: int
    weights: FloatArray
    """Of `STATIC` the six of `static_scores`; of lifetimes late, early and crowd; of their points late, early and sharpness."""


class Known(NamedTuple):
    """What is known of lifetimes; row 0 of every array is the pool of all applications."""

    ends: FloatArray
    at_risk: FloatArray
    hazard: FloatArray
    survival: FloatArray
    empty: FloatArray
    """[nodes, times ahead]: chance that a node is empty then."""
    rest: FloatArray
    spread: FloatArray
    refreshed_s: FloatArray


def nothing_known(applications: int, nodes: int) -> Known:
    """Before the first pod."""
    rows = applications + 1
    return Known(
        ends=np.zeros((rows, BINS)), at_risk=np.zeros((rows, BINS)), hazard=np.zeros((rows, BINS)), survival=np.zeros((rows, BINS + 1)),
        empty=np.ones((nodes, POINTS)), rest=np.zeros((rows, BINS + 1)), spread=np.zeros(rows), refreshed_s=np.full(1, -np.inf),
    )  # fmt: skip


@inlined
def pass_bins(c: LivesCluster, f: LivesFleet, known: Known, p: int, age_s: float) -> None:
    """Count a pod at risk in every bin that it has outlived since it was last counted."""
    a = f.application[p] + 1
    while c.passed[p] < BINS and EDGES_S[c.passed[p] + 1] <= age_s:
        known.at_risk[a, c.passed[p]] += 1.0
        known.at_risk[0, c.passed[p]] += 1.0
        c.passed[p] += 1


@compiled
def learn_end(c: LivesCluster, f: LivesFleet, known: Known, p: int, t: float) -> None:
    """A pod has ended."""
    pass_bins(c, f, known, p, t - c.started_s[p])
    b = c.passed[p]
    if b < BINS:
        a = f.application[p] + 1
        for row in (0, a):
            known.at_risk[row, b] += 1.0
            known.ends[row, b] += 1.0


@compiled
def look_at(c: LivesCluster, f: LivesFleet, known: Known, n: int, t: float) -> None:
    """Foresee when a node will be empty."""
    there = c.pods[n, : c.running[n]]
    known.empty[n] = _chance_empty(_chances_gone(known.survival, f.application[there] + 1, t - c.started_s[there]))


@compiled
def refresh(c: LivesCluster, f: LivesFleet, known: Known, t: float) -> None:
    """Put together anew what is known of lifetimes, if that was done too long ago."""
    if t < known.refreshed_s[0] + REFRESH_S:
        return
    if known.refreshed_s[0] > -np.inf:
        kept = _kept_share(t - known.refreshed_s[0])
        known.ends[:] *= kept
        known.at_risk[:] *= kept
    known.refreshed_s[0] = t
    for n in range(c.rows[0]):
        for i in range(c.running[n]):
            pass_bins(c, f, known, c.pods[n, i], t - c.started_s[c.pods[n, i]])
    known.hazard[:] = _hazards(known.ends, known.at_risk)
    known.survival[:] = _survivals(known.hazard)
    known.rest[:] = rests_at_edges(known.hazard)
    known.spread[:] = spreads(known.survival)
    for n in range(c.rows[0]):
        if c.open[n]:
            look_at(c, f, known, n, t)


@compiled
def emptying_s(c: LivesCluster, f: LivesFleet, known: Known, rows: IntArray, t: float, true: bool) -> FloatArray:
    """The largest rest of a pod on each node, expected or true."""
    total = 0
    for n in rows:
        total += c.running[n]
    row = np.empty(total, np.int64)
    application = np.empty(total, np.int64)
    age_s = np.empty(total)
    rest_s: FloatArray = np.empty(total)
    k = 0
    for i in range(len(rows)):
        for j in range(c.running[rows[i]]):
            p = c.pods[rows[i], j]
            row[k] = i
            application[k] = f.application[p] + 1
            age_s[k] = t - c.started_s[p]
            rest_s[k] = f.life_s[p] - age_s[k]
            k += 1
    if not true:
        rest_s = expected_rests(known.hazard, known.rest, application, age_s)
    largest = np.zeros(len(rows))
    for k in range(total):
        largest[row[k]] = max(largest[row[k]], rest_s[k])
    return largest


@compiled
def static_scores(c: LivesCluster, f: LivesFleet, weights: FloatArray, rows: IntArray, p: int, t: float) -> FloatArray:
    """Six weights on what a node shows without any history of lifetimes: the strongest rule without learning that was found."""
    scores = np.empty(len(rows))
    for i in range(len(rows)):
        n = rows[i]
        cpu, memory = (c.cores[n] + f.cores[p]) / NODE_CORES, (c.gib[n] + f.gib[p]) / NODE_GIB
        alike = 0.0
        for j in range(c.running[n]):
            if f.application[c.pods[n, j]] == f.application[p]:
                alike += f.cores[p]
        scores[i] = (
            weights[0] * (cpu + memory) / 2
            + weights[1] * max(cpu, memory)
            - weights[2] * abs(cpu - memory)
            - weights[3] * max((c.use[n] + f.cores[p]) / NODE_CORES - BUSY, 0.0)
            + weights[4] * min((t - c.opened_s[n]) / (DAY_S / 2), 1.0)
            + weights[5] * alike / NODE_CORES
        )
    return scores


@compiled
def kube_default_scores(c: LivesCluster, f: LivesFleet, rows: IntArray, p: int) -> FloatArray:
    """LeastAllocated and BalancedAllocation, 0 to 100 each, as kube-scheduler has them by default."""
    scores = np.empty(len(rows))
    for i in range(len(rows)):
        cpu, memory = (c.cores[rows[i]] + f.cores[p]) / NODE_CORES, (c.gib[rows[i]] + f.gib[p]) / NODE_GIB
        scores[i] = np.floor(100.0 * (1.0 - (cpu + memory) / 2)) + np.floor(100.0 * (1.0 - abs(cpu - memory) / 2))
    return scores


@compiled
def scores_of(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, rows: IntArray, p: int, t: float) -> FloatArray:
    """One score a candidate."""
    if rule.kind == KUBE_DEFAULT:
        return kube_default_scores(c, f, rows, p)
    if rule.kind == STATIC:
        return static_scores(c, f, rule.weights, rows, p, t)
    whole = np.ones(len(rows))
    allocation = _most_allocated(c.cores[rows], NODE_CORES * whole, f.cores[p], c.gib[rows], NODE_GIB * whole, f.gib[p])
    if rule.kind == MOST_ALLOCATED:
        return allocation
    if rule.kind == LIFETIMES:
        own = _chances_gone(known.survival, np.full(1, f.application[p] + 1), np.zeros(1))[0]
        empty = known.empty[rows]
        crowd = _crowding(c.use[rows], NODE_CORES * whole, f.cores[p])  # what pods would use is what a load average shows
        late, early = _prolonged(empty, own), _left_behind(empty, own)
        packed: FloatArray = allocation - rule.weights[0] * late - rule.weights[1] * early - rule.weights[2] * crowd
        return packed
    true = rule.kind == TRUE_LIFETIMES
    empties_s = emptying_s(c, f, known, rows, t, true)
    if true:
        return point_score(allocation, empties_s, f.life_s[p], rule.weights[0], rule.weights[1])
    a = f.application[p] + 1
    trusted = trust(known.spread[a], rule.weights[2])
    return point_score(allocation, empties_s, known.rest[a, 0], rule.weights[0] * trusted, rule.weights[1] * trusted * trusted)


@compiled
def choose(c: LivesCluster, f: LivesFleet, known: Known, rule: LivesRule, rows: IntArray, p: int, t: float) -> int:
    """The best candidate, equals by hash."""
    scores = scores_of(c, f, known, rule, rows, p, t)
    return int(rows[np.argmin(_sort_key(scores, _mixed_ties(f.uid_hash[p], f.node_hash[rows]), _EPSILON))])
