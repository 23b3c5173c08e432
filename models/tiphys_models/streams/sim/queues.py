"""What becomes of the queries of bound streams, compiled: query by query (the reference), and per tick (fitted to it, 30 times faster).

Both fill a tally: rows are applications, columns SUCCESS, REJECT, LATE and DROPPED, in queries; and what every offer did. Neither
changes bindings: bound streams never move.
"""

from __future__ import annotations

import math

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.streams.sim.kernel import LIVE, EdgeCloud, State, Streams
from tiphys_models.streams.sim.scenario import LONGEST_WAIT_S

SUCCESS, REJECT, LATE, DROPPED = range(4)
STREAM_SECONDS, RESPONSES, OFFERED = range(3)
"""Columns of what an offer did: streams x s, queries answered, queries of the profiled size that came."""
_FAR_SIGMAS, _FAR_WAITS = 12.0, 30.0
"""Beyond these a tail is below 1e-12: not computed, which halves the time of a tick."""
_FULL = 0.98
"""Above this use the mean wait of a steady queue says nothing: the backlog does."""


@compiled
def forget_ended(streams: Streams, state: State, now_s: float) -> None:
    """Take streams that ended from the list of live ones."""
    kept = 0
    for k in range(state.at[LIVE]):
        i = state.live[k]
        if streams.end_s[i] > now_s:
            state.live[kept] = i
            kept += 1
    state.at[LIVE] = kept


@compiled
def steady_wait_ms(load_qps: float, capacity_qps: float, replicas: float, variability: float) -> float:
    """Sakasegawa's mean of a G/G/c queue."""
    use = min(load_qps / capacity_qps, _FULL)
    mean_ms: float = 1000.0 * variability * use ** (math.sqrt(2.0 * (replicas + 1.0)) - 1.0) / (1.0 - use) / capacity_qps
    return mean_ms


@compiled
def late_share(left_ms: float, sigma_ms: float, wait_ms: float) -> float:
    """Share of queries that are late if so much time is left to wait: the wait is exponential, network delays vary both ways."""
    late = 0.0
    if left_ms < _FAR_SIGMAS * sigma_ms:
        late = 0.5 * math.erfc(left_ms / (2.0 * max(sigma_ms, 1e-6)))  # both ways: sigma x sqrt 2
    if left_ms <= 0.0:
        return max(late, 0.5)
    if left_ms < _FAR_WAITS * wait_ms:
        late = min(late + math.exp(-left_ms / wait_ms), 1.0)
    return late


@compiled
def tick(
    world: EdgeCloud, streams: Streams, state: State, t0: float, t1: float, variability: float, tally: FloatArray, work: FloatArray
) -> None:
    """One tick: fluid backlog, and on top the wait of a steady queue with so much variability, taken as exponential."""
    capacity = world.columns.capacity_qps
    count = len(capacity)
    offered = np.zeros(count)
    for k in range(state.at[LIVE]):
        i = state.live[k]
        if state.offer[i] >= 0:
            overlap = min(streams.end_s[i], t1) - max(streams.start_s[i], t0)
            if overlap > 0.0:
                offered[state.offer[i]] += state.added_qps[i] * overlap
    dropped = np.zeros(count)
    backlog_ms = np.zeros(count)
    wait_ms = np.zeros(count)
    for o in range(count):
        before = state.backlog[o]
        after = max(before + offered[o] - capacity[o] * (t1 - t0), 0.0)
        most = LONGEST_WAIT_S * capacity[o]
        if after > most:
            dropped[o] = min((after - most) / offered[o], 1.0)
            after = most
        state.backlog[o] = after
        backlog_ms[o] = 500.0 * (before + after) / capacity[o]
        wait_ms[o] = steady_wait_ms(offered[o] / (t1 - t0), capacity[o], world.columns.replicas[o], variability)
    for k in range(state.at[LIVE]):
        i = state.live[k]
        overlap = min(streams.end_s[i], t1) - max(streams.start_s[i], t0)
        if overlap <= 0.0:
            continue
        queries = streams.rate_qps[i] * overlap
        o = state.offer[i]
        app = streams.application[i]
        if o < 0:
            tally[app, REJECT] += queries
            continue
        a = streams.access[i]
        delay = world.columns.delay_ms[o] * streams.size_kb[i] / world.columns.profiled_kb[o]
        left = streams.slack_ms[i] - 2.0 * world.mean_ms[a, o] - delay - backlog_ms[o]
        late = late_share(left, world.sigma_ms[a, o], wait_ms[o])
        tally[app, DROPPED] += queries * dropped[o]
        tally[app, LATE] += queries * (1.0 - dropped[o]) * late
        tally[app, SUCCESS] += queries * (1.0 - dropped[o]) * (1.0 - late)
        work[o, STREAM_SECONDS] += overlap
        work[o, RESPONSES] += queries * (1.0 - dropped[o])
        work[o, OFFERED] += state.added_qps[i] * overlap


@compiled
def _frames(streams: Streams, state: State, t0: float, t1: float, poisson: bool, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """When the live streams send in [t0, t1), and whose each query is."""
    most = 0
    for k in range(state.at[LIVE]):
        most += int(3.0 * streams.rate_qps[state.live[k]] * (t1 - t0)) + 30
    times, owners = np.empty(most), np.empty(most)
    n = 0
    for k in range(state.at[LIVE]):
        i = state.live[k]
        begin, end, rate = max(streams.start_s[i], t0), min(streams.end_s[i], t1), streams.rate_qps[i]
        if end <= begin:
            continue
        if poisson:
            for _ in range(rng.poisson(rate * (end - begin))):
                if n < most:
                    times[n], owners[n] = rng.uniform(begin, end), i
                    n += 1
            continue
        frame = math.ceil((begin - streams.start_s[i]) * rate - streams.phase[i])
        at = streams.start_s[i] + (max(frame, 0) + streams.phase[i]) / rate
        while at < end:
            if at >= begin:
                times[n], owners[n] = at, i
                n += 1
            at += 1.0 / rate
    return times[:n], owners[:n]


@compiled
def events(
    world: EdgeCloud, streams: Streams, state: State, t0: float, t1: float, poisson: bool, rng: np.random.Generator,
    tally: FloatArray, work: FloatArray,
) -> None:  # fmt: skip
    """Every query by itself: a way to the site, a queue served in order by all replicas, processing, the way back."""
    times, owners = _frames(streams, state, t0, t1, poisson, rng)
    out_ms = np.empty(len(times))
    for q in range(len(times)):
        i = int(owners[q])
        if state.offer[i] >= 0:
            a, o = streams.access[i], state.offer[i]
            out_ms[q] = max(world.mean_ms[a, o] + world.sigma_ms[a, o] * rng.normal(), 0.0)
    replicas = world.columns.replicas.astype(np.int64)
    first = np.cumsum(replicas) - replicas
    for q in np.argsort(times + out_ms / 1000.0):
        i = int(owners[q])
        o, app = state.offer[i], streams.application[i]
        if o < 0:
            tally[app, REJECT] += 1.0
            continue
        a = streams.access[i]
        arrives = times[q] + out_ms[q] / 1000.0
        work[o, OFFERED] += state.added_qps[i] / streams.rate_qps[i]
        server = first[o]
        for s in range(first[o], first[o] + replicas[o]):
            if state.free_s[s] < state.free_s[server]:
                server = s
        wait_s = max(state.free_s[server] - arrives, 0.0)
        if wait_s > LONGEST_WAIT_S:
            tally[app, DROPPED] += 1.0
            continue
        eta = streams.size_kb[i] / world.columns.profiled_kb[o]
        state.free_s[server] = arrives + wait_s + eta * replicas[o] / world.columns.capacity_qps[o]
        work[o, RESPONSES] += 1.0
        back_ms = max(world.mean_ms[a, o] + world.sigma_ms[a, o] * rng.normal(), 0.0)
        used_ms = out_ms[q] + 1000.0 * wait_s + world.columns.delay_ms[o] * eta + back_ms
        tally[app, SUCCESS if used_ms <= streams.slack_ms[i] else LATE] += 1.0
    for k in range(state.at[LIVE]):
        i = state.live[k]
        if state.offer[i] >= 0:
            work[state.offer[i], STREAM_SECONDS] += max(min(streams.end_s[i], t1) - max(streams.start_s[i], t0), 0.0)
