"""A world, a seed and a policy in; node-hours, slowdown and waiting of the second day out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.hashing import stable_hash
from tiphys_models.placement import lifetimes
from tiphys_models.placement.sim.lives import decide
from tiphys_models.placement.sim.lives.cluster import MOST_NODES, MOVED, NODE_HOURS, RAN_S, WORKED_S, LivesFleet, new_cluster
from tiphys_models.placement.sim.lives.decide import LivesRule, nothing_known
from tiphys_models.placement.sim.lives.run import run_days
from tiphys_models.placement.sim.lives.world import DAY_S, DAYS, NODE_CORES, NODE_GIB, LivesPods, LivesWorld

CONSOLIDATE_S = 600.0
_ROWS = 512
MOST = LivesRule(decide.MOST_ALLOCATED, np.zeros(0))
KUBE = LivesRule(decide.KUBE_DEFAULT, np.zeros(0))


@dataclass(frozen=True, slots=True)
class LivesResult:
    """The second day."""

    pods: int
    """That came on it."""
    node_hours: float
    slowdown: float
    """Time that pods ran over what they would have needed alone."""
    most_nodes: int
    moved: int
    waited_s: FloatArray
    """Of pods that came on it and started."""
    completion_s: FloatArray
    """Arrival to end of pods that ended on it."""
    unplaced: int


def learned(late: float = lifetimes.LATE, early: float = lifetimes.EARLY, crowd: float = lifetimes.CROWD) -> LivesRule:
    """Lifetimes as they are learned on the way."""
    return LivesRule(decide.LIFETIMES, np.array([late, early, crowd]))


def learned_points(late: float = 1.2, early: float = 0.1, sharpness: float = 0.8) -> LivesRule:
    """The same, each pod by its expected rest alone."""
    return LivesRule(decide.LIFETIME_POINTS, np.array([late, early, sharpness]))


def true_lives(late: float = 1.0, early: float = 0.3) -> LivesRule:
    """Lifetimes that nobody can know before: a bound."""
    return LivesRule(decide.TRUE_LIFETIMES, np.array([late, early, 0.0]))


def static_rule(weights: tuple[float, ...]) -> LivesRule:
    """Six weights."""
    return LivesRule(decide.STATIC, np.array(weights, np.float64))


def play(world: LivesWorld, pods: LivesPods, rule: LivesRule) -> LivesResult:
    """Both days through one policy."""
    cluster = new_cluster(len(pods), _ROWS)
    fleet = LivesFleet(
        pods.arrival_s, pods.application, pods.life_s, pods.works, pods.cores, pods.gib, pods.use_cores, pods.uid_hash,
        np.array([stable_hash(f"node-{n:05d}") for n in range(_ROWS)], np.uint64),
        world.interference, world.start_s, world.linger_s, CONSOLIDATE_S if world.consolidates else np.inf,
    )  # fmt: skip
    run_days(cluster, fleet, nothing_known(pods.applications, _ROWS), rule)
    came = pods.arrival_s >= DAY_S
    waited_s = (cluster.started_s - pods.arrival_s)[came]
    ended = cluster.ended_s >= DAY_S
    return LivesResult(
        pods=int(came.sum()),
        node_hours=float(cluster.hours[NODE_HOURS]),
        slowdown=float(cluster.hours[RAN_S] / cluster.hours[WORKED_S]),
        most_nodes=int(cluster.hours[MOST_NODES]),
        moved=int(cluster.hours[MOVED]),
        waited_s=waited_s[~np.isnan(waited_s)],
        completion_s=(cluster.ended_s - pods.arrival_s)[ended],
        unplaced=int(np.isnan(waited_s).sum()),
    )


def volume_bound(pods: LivesPods) -> float:
    """Node-hours of the second day that what is requested at each moment needs at least, however it is cut and moved."""
    times = np.concatenate((pods.arrival_s, pods.arrival_s + pods.life_s))
    order = np.argsort(times, kind="stable")
    at_s = np.clip(np.append(times[order], DAYS * DAY_S), DAY_S, DAYS * DAY_S)
    needed = []
    for requested, size in ((pods.cores, NODE_CORES), (pods.gib, NODE_GIB)):
        there = np.cumsum(np.concatenate((requested, -requested))[order])
        needed.append(np.ceil(there / size - 1e-6))
    return float((np.maximum(*needed) * np.diff(at_s)).sum() / 3600.0)
