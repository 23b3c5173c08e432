"""One workload under Kubernetes' filter, start to last completion, in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.sim.cluster import SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.events import advance, put
from tiphys_models.placement.sim.kube.belief import Belief, correct, expire_listed, give_back, learn_call, take
from tiphys_models.placement.sim.kube.deciding import NOT_YET, KubeRule, decide_one
from tiphys_models.placement.sim.observe import NodeSamples, reserve, take_sample

_NEVER = np.inf


class Clock(NamedTuple):
    """How often things are looked at."""

    period_s: float
    delay_s: float
    look_again_s: float


@compiled
def end_of(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, k: int, core_seconds: bool) -> None:
    """Call k is seen to have ended: nothing of it is in flight any longer, its instance is idle, its function is known better."""
    n = c.calls[k].node
    f = g.function[k]
    t = c.calls[k].finish_s
    seen.inflight[n] -= 1.0
    seen.inflight_memory[n] -= g.functions[f].memory
    if seen.placed_s[k] > seen.sample_s[n]:
        seen.taken[f, n] -= 1.0
        seen.idle[f, n] = max(seen.reported[f, n] - seen.taken[f, n], 0.0)
    if g.reuse:
        give_back(b, n, f, g.functions.memory, t)
    ready_s = c.calls[k].ready_s
    work = (g.functions[f].cold_work if c.calls[k].cold else g.functions[f].warm_work) * g.noise[k] / c.nodes[n].speed
    # nobody tells whether it was cold: it was if the books listed no instance
    learn_call(b, n, f, b.cold[k], ready_s - seen.placed_s[k], t - ready_s, work, core_seconds)


@compiled
def see_ends(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, t: float, core_seconds: bool) -> bool:
    """Every open call that has ended by t is seen; whether there was any."""
    kept = 0
    for i in range(seen.open_count[0]):
        k = seen.open_calls[i]
        if c.calls[k].finish_s <= t:
            end_of(c, g, seen, b, k, core_seconds)
        else:
            seen.open_calls[kept] = k
            kept += 1
    ended = bool(kept < seen.open_count[0])
    seen.open_count[0] = kept
    return ended


@compiled
def publish_sample(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, sampled_s: float) -> None:
    """Show the next sample: readings as they were, idle instances less what was placed since."""
    slot = seen.due[1] % len(seen.ring_inflight)
    seen.due[1] += 1
    seen.readings[:] = seen.ring_readings[slot]
    seen.reported[:] = seen.ring_idle[slot]
    seen.taken[:] = 0.0
    seen.sample_s[:] = sampled_s
    for i in range(seen.open_count[0]):
        k = seen.open_calls[i]
        if seen.placed_s[k] > sampled_s:
            seen.taken[g.function[k], c.calls[k].node] += 1.0
    seen.idle[:] = np.maximum(seen.reported - seen.taken, 0.0)
    for n in range(len(c.nodes) - 1):
        correct(b, n, seen.reported[:, n].copy(), g.functions.memory, sampled_s)


@compiled
def place_call(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, k: int, n: int, t: float) -> None:
    """Call k goes to node n."""
    reserve(c, g, seen, k, n, t)
    b.cold[k] = take(b, n, g.function[k], g.functions.memory, seen.inflight_memory[n], c.nodes[n].capacity, t)
    put(c, g, k, n, t)


@compiled
def look_at(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, rule: KubeRule, queue: IntArray, waiting: int, t: float,
    name_hash: HashArray, uid_hash: HashArray,
) -> int:  # fmt: skip
    """Everybody who waits is asked again, oldest first; how many go on waiting."""
    for n in range(len(c.nodes) - 1):
        expire_listed(b, n, g.functions.memory, g.keep_alive_s, t)
    before = np.zeros(len(g.functions), np.int64)
    kept = 0
    for i in range(waiting):
        k = queue[i]
        f = g.function[k]
        found = decide_one(c, g, seen, b, rule, k, before[f], t, name_hash, uid_hash)
        if found >= 0:
            place_call(c, g, seen, b, k, found, t)
            continue
        if found == NOT_YET:
            before[f] += 1
            if np.isnan(b.held_s[k]):
                b.held_s[k] = t
        queue[kept] = k
        kept += 1
    return kept


@compiled
def run_pods(
    c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, b: Belief, rule: KubeRule, clock: Clock, name_hash: HashArray,
    uid_hash: HashArray, placed_s: FloatArray, core_seconds: bool,
) -> None:  # fmt: skip
    """All calls in order of arrival, and on until every one has ended; `placed_s` receives when each was given its node."""
    calls = len(g.arrival_s)
    queue = np.empty(calls, np.int64)
    waiting = 0
    arrived = 0
    looked_s = -_NEVER
    take_sample(c, g, seen, 0.0, clock.period_s)
    publish_sample(c, g, seen, b, 0.0)
    while arrived < calls or waiting > 0 or seen.open_count[0] > 0:
        take_s = seen.due[0] * clock.period_s
        show_s = seen.due[1] * clock.period_s + clock.delay_s if seen.due[1] < seen.due[0] else _NEVER
        arrive_s = g.arrival_s[arrived] if arrived < calls else _NEVER
        look_s = looked_s + clock.look_again_s if waiting > 0 else _NEVER
        event_s = _NEVER
        for n in range(len(c.nodes) - 1):
            event_s = min(event_s, c.nodes[n].next_s)
        t = min(take_s, show_s, arrive_s, look_s, event_s)
        advance(c, g, t)
        look = see_ends(c, g, seen, b, t, core_seconds)
        if take_s <= t:
            take_sample(c, g, seen, t, clock.period_s)
            show_s = seen.due[1] * clock.period_s + clock.delay_s
        if show_s <= t and seen.due[1] < seen.due[0]:
            publish_sample(c, g, seen, b, seen.due[1] * clock.period_s)
            look = True
        if waiting > 0 and (look or look_s <= t):
            waiting = look_at(c, g, seen, b, rule, queue, waiting, t, name_hash, uid_hash)
            looked_s = t
        if arrive_s <= t:
            queue[waiting] = arrived
            arrived += 1
            rank = 0
            for i in range(waiting):
                if g.function[queue[i]] == g.function[queue[waiting]] and not np.isnan(b.held_s[queue[i]]):
                    rank += 1
            k = queue[waiting]
            for n in range(len(c.nodes) - 1):
                expire_listed(b, n, g.functions.memory, g.keep_alive_s, t)
            found = decide_one(c, g, seen, b, rule, k, rank, t, name_hash, uid_hash)
            if found >= 0:
                place_call(c, g, seen, b, k, found, t)
            else:
                if found == NOT_YET:
                    b.held_s[k] = t
                if waiting == 0:
                    looked_s = t
                waiting += 1
    placed_s[:] = seen.placed_s
