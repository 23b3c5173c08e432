"""The simulated cluster: containers, queues and shared cores, as arrays that compiled code moves from event to event.

Rules, all of them a choice that decides the results:
- a call goes to an idle container of its function, else into a new container if memory is free after removing idle containers
  of other functions (longest idle first), else to the end of the node's queue; the queue is strict: nobody overtakes its head;
- a new container starts for `init_s` with idle cores, then its first call works (cold - init) * parallelism core-seconds;
- cores are shared by weighted max-min, the weight being memory, no call getting more cores than it can use, nothing left over;
- a container stays idle for the keep-alive, or until its memory is wanted.

The last row of every per-node array is scratch space: a copy of one node that can be rolled forward to see what would happen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.features.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.sim.compiled import compiled, inlined

INIT, RUN, IDLE = 1, 2, 3
WORK_CONSERVING, CAPPED = 0, 1
_NEVER = np.inf
_DONE = 1e-9
"""Core-seconds: what is left of a call that has finished, given the rounding of subtraction."""
_LOAD_S = 60.0


class Fleet(NamedTuple):
    """What does not change while a workload runs: functions, limits, calls."""

    memory: FloatArray
    """Bytes, per function; the same names below."""
    init_s: FloatArray
    warm_work: FloatArray
    cold_work: FloatArray
    parallelism: FloatArray
    disk_reads_cold: FloatArray
    disk_writes: FloatArray
    net_received: FloatArray
    net_sent: FloatArray
    keep_alive_s: float
    sharing: int
    interference: float
    """Every further call on a node slows all of them: rate / (1 + interference * (calls - 1))."""
    reuse: bool
    """Whether a container serves a second call."""
    arrival_s: FloatArray
    function: IntArray
    noise: FloatArray


class Cluster(NamedTuple):
    """Everything that changes. Shapes: N + 1 nodes (the last is scratch), C containers a node, K calls."""

    cores: FloatArray
    capacity: FloatArray
    alive: BoolArray
    kind: IntArray
    """[N + 1, C]: what each container does, packed to the front; the same shape below."""
    holds: IntArray
    call: IntArray
    left: FloatArray
    """Core-seconds of a running call; the time of readiness of a starting one."""
    since: FloatArray
    rate: FloatArray
    containers: IntArray
    pool: FloatArray
    """Bytes held by containers."""
    head: IntArray
    tail: IntArray
    queued: IntArray
    next_s: FloatArray
    """When something happens next on the node."""
    seen_s: FloatArray
    """Up to when the node has been moved forward."""
    inflight: FloatArray
    inflight_memory: FloatArray
    threads: FloatArray
    used_cores: FloatArray
    load: FloatArray
    busy: FloatArray
    """Core-seconds since the last sample; the same below."""
    reads: FloatArray
    writes: FloatArray
    received: FloatArray
    sent: FloatArray
    switches: FloatArray
    finish_sum: FloatArray
    """Of the scratch node: sum of the times at which calls finished."""
    behind: IntArray
    """[K]: who stands behind a queued call; -1 nobody."""
    node: IntArray
    start_s: FloatArray
    finish_s: FloatArray
    cold: BoolArray


def _zeros(*shape: int) -> FloatArray:
    return np.zeros(shape)


def _whole(*shape: int) -> IntArray:
    return np.zeros(shape, np.int64)


def new_cluster(cores: FloatArray, capacity_bytes: FloatArray, least_memory: float, calls: int) -> Cluster:
    """Empty nodes of these sizes."""
    nodes = len(cores) + 1
    slots = max(int(np.max(capacity_bytes) // least_memory), 1)
    return Cluster(
        cores=np.append(cores, 0.0), capacity=np.append(capacity_bytes, 0.0), alive=np.append(np.ones(len(cores), np.bool_), False),
        kind=_whole(nodes, slots), holds=_whole(nodes, slots), call=_whole(nodes, slots), left=_zeros(nodes, slots), since=_zeros(nodes,
        slots),
        rate=_zeros(nodes, slots), containers=_whole(nodes), pool=_zeros(nodes), head=_whole(nodes) - 1, tail=_whole(nodes) - 1,
        queued=_whole(nodes),
        next_s=_zeros(nodes) + _NEVER, seen_s=_zeros(nodes), inflight=_zeros(nodes), inflight_memory=_zeros(nodes), threads=_zeros(nodes),
        used_cores=_zeros(nodes), load=_zeros(nodes), busy=_zeros(nodes), reads=_zeros(nodes), writes=_zeros(nodes),
        received=_zeros(nodes), sent=_zeros(nodes),
        switches=_zeros(nodes), finish_sum=_zeros(1), behind=_whole(calls) - 1, node=_whole(calls) - 1, start_s=_zeros(calls) + np.nan,
        finish_s=_zeros(calls) + np.nan, cold=np.zeros(calls, np.bool_),
    )  # fmt: skip


@inlined
def move(c: Cluster, n: int, t: float) -> None:
    """Let node n work until t at its present shares; nothing starts or ends."""
    step = t - c.seen_s[n]
    if step <= 0:
        return
    for s in range(c.containers[n]):
        if c.kind[n, s] == RUN:
            c.left[n, s] -= c.rate[n, s] * step
    c.busy[n] += c.used_cores[n] * step
    c.switches[n] += (100.0 + 400.0 * c.threads[n]) * step
    decay = np.exp(-step / _LOAD_S)
    c.load[n] = c.load[n] * decay + c.threads[n] * (1.0 - decay)
    c.seen_s[n] = t


@inlined
def share(c: Cluster, g: Fleet, n: int) -> None:
    """Divide the cores of node n anew and find out when its next event is."""
    running = 0
    wanted = 0.0
    weight = 0.0
    next_s = _NEVER
    for s in range(c.containers[n]):
        if c.kind[n, s] == RUN:
            running += 1
            f = c.holds[n, s]
            wanted += g.parallelism[f]
            weight += g.memory[f]
            c.rate[n, s] = -1.0
        elif c.kind[n, s] == INIT:
            next_s = min(next_s, c.left[n, s])
    c.threads[n] = wanted
    left = c.cores[n]
    if g.sharing == CAPPED:
        for s in range(c.containers[n]):
            if c.kind[n, s] == RUN:
                f = c.holds[n, s]
                c.rate[n, s] = min(g.parallelism[f], c.cores[n] * g.memory[f] / c.capacity[n])
    elif wanted <= left:
        for s in range(c.containers[n]):
            if c.kind[n, s] == RUN:
                c.rate[n, s] = g.parallelism[c.holds[n, s]]
    else:
        open_calls = running
        again = True
        while again and open_calls > 0:
            again = False
            unit = left / weight
            for s in range(c.containers[n]):
                if c.kind[n, s] == RUN and c.rate[n, s] < 0:
                    f = c.holds[n, s]
                    if g.parallelism[f] <= unit * g.memory[f]:
                        c.rate[n, s] = g.parallelism[f]
                        left -= g.parallelism[f]
                        weight -= g.memory[f]
                        open_calls -= 1
                        again = True
        if open_calls > 0:
            unit = left / weight
            for s in range(c.containers[n]):
                if c.kind[n, s] == RUN and c.rate[n, s] < 0:
                    c.rate[n, s] = unit * g.memory[c.holds[n, s]]
    slower = 1.0 / (1.0 + g.interference * max(running - 1, 0))
    used = 0.0
    for s in range(c.containers[n]):
        if c.kind[n, s] == RUN:
            c.rate[n, s] *= slower
            used += c.rate[n, s]
            next_s = min(next_s, c.seen_s[n] + max(c.left[n, s], 0.0) / c.rate[n, s])
    c.used_cores[n] = used
    c.next_s[n] = next_s


@inlined
def remove(c: Cluster, g: Fleet, n: int, s: int) -> None:
    """Take container s off node n; the last one moves into its place."""
    c.pool[n] -= g.memory[c.holds[n, s]]
    last = c.containers[n] - 1
    if s != last:
        c.kind[n, s] = c.kind[n, last]
        c.holds[n, s] = c.holds[n, last]
        c.call[n, s] = c.call[n, last]
        c.left[n, s] = c.left[n, last]
        c.since[n, s] = c.since[n, last]
        c.rate[n, s] = c.rate[n, last]
    c.containers[n] = last


@inlined
def expire(c: Cluster, g: Fleet, n: int, t: float) -> None:
    """Remove containers that have been idle for longer than the keep-alive."""
    s = 0
    while s < c.containers[n]:
        if c.kind[n, s] == IDLE and t - c.since[n, s] > g.keep_alive_s:
            remove(c, g, n, s)
        else:
            s += 1


@inlined
def begin(c: Cluster, g: Fleet, n: int, k: int, t: float) -> bool:
    """Give call k a container on node n if there is one to have."""
    f = g.function[k]
    real = n < len(c.cores) - 1
    best = -1
    for s in range(c.containers[n]):
        # the one that became idle last: the others may then be removed sooner
        if c.kind[n, s] == IDLE and c.holds[n, s] == f and (best < 0 or c.since[n, s] > c.since[n, best]):
            best = s
    if best >= 0:
        c.kind[n, best] = RUN
        c.call[n, best] = k
        c.left[n, best] = g.warm_work[f] * g.noise[k]
    else:
        idle = 0.0
        for s in range(c.containers[n]):
            if c.kind[n, s] == IDLE:
                idle += g.memory[c.holds[n, s]]
        if c.capacity[n] - c.pool[n] + idle < g.memory[f]:
            return False
        while c.capacity[n] - c.pool[n] < g.memory[f]:
            oldest = -1
            for s in range(c.containers[n]):
                if c.kind[n, s] == IDLE and (oldest < 0 or c.since[n, s] < c.since[n, oldest]):
                    oldest = s
            remove(c, g, n, oldest)
        s = c.containers[n]
        c.containers[n] = s + 1
        c.pool[n] += g.memory[f]
        c.kind[n, s] = INIT
        c.holds[n, s] = f
        c.call[n, s] = k
        c.left[n, s] = t + g.init_s[f]
        c.rate[n, s] = 0.0
        c.reads[n] += g.disk_reads_cold[f]
    c.received[n] += g.net_received[f]
    if real:
        c.start_s[k] = t
        c.cold[k] = best < 0
    return True


@compiled
def settle(c: Cluster, g: Fleet, n: int, t: float) -> None:
    """Everything that is due on node n at t: starts that are ready, calls that are done, the queue behind them."""
    freed = False
    s = 0
    while s < c.containers[n]:
        if c.kind[n, s] == INIT and c.left[n, s] <= t:
            f = c.holds[n, s]
            c.kind[n, s] = RUN
            c.left[n, s] = g.cold_work[f] * g.noise[c.call[n, s]]
            s += 1
        elif c.kind[n, s] == RUN and c.left[n, s] <= _DONE * max(c.rate[n, s], 1.0):
            k = c.call[n, s]
            f = c.holds[n, s]
            freed = True
            c.inflight[n] -= 1
            c.inflight_memory[n] -= g.memory[f]
            c.writes[n] += g.disk_writes[f]
            c.sent[n] += g.net_sent[f]
            if n < len(c.cores) - 1:
                c.finish_s[k] = t
            else:
                c.finish_sum[0] += t
            if g.reuse:
                c.kind[n, s] = IDLE
                c.call[n, s] = -1
                c.since[n, s] = t
                c.rate[n, s] = 0.0
                s += 1
            else:
                remove(c, g, n, s)
        else:
            s += 1
    if freed:
        expire(c, g, n, t)
        while c.queued[n] > 0 and begin(c, g, n, c.head[n], t):
            c.head[n] = c.behind[c.head[n]]
            c.queued[n] -= 1
    share(c, g, n)


@compiled
def put(c: Cluster, g: Fleet, k: int, n: int, t: float) -> None:
    """Call k arrives at node n at t, everything before t having happened."""
    move(c, n, t)
    expire(c, g, n, t)
    f = g.function[k]
    c.inflight[n] += 1
    c.inflight_memory[n] += g.memory[f]
    if n < len(c.cores) - 1:
        c.node[k] = n
    if c.queued[n] == 0 and begin(c, g, n, k, t):
        share(c, g, n)
        return
    c.behind[k] = -1
    if c.queued[n] == 0:
        c.head[n] = k
    else:
        c.behind[c.tail[n]] = k
    c.tail[n] = k
    c.queued[n] += 1


@compiled
def advance(c: Cluster, g: Fleet, t: float) -> None:
    """Let the whole cluster run until t, events at t included."""
    nodes = len(c.cores) - 1
    for n in range(nodes):  # nodes do not touch each other between decisions
        while c.next_s[n] <= t:
            at = c.next_s[n]
            move(c, n, at)
            settle(c, g, n, at)


@compiled
def drain(c: Cluster, g: Fleet, n: int) -> None:
    """Let node n run until nothing is left on it."""
    while c.next_s[n] < _NEVER:
        at = c.next_s[n]
        move(c, n, at)
        settle(c, g, n, at)


@compiled
def copy_node(c: Cluster, source: int, target: int) -> None:
    """Make one row equal to another."""
    c.cores[target] = c.cores[source]
    c.capacity[target] = c.capacity[source]
    for s in range(c.containers[source]):
        c.kind[target, s] = c.kind[source, s]
        c.holds[target, s] = c.holds[source, s]
        c.call[target, s] = c.call[source, s]
        c.left[target, s] = c.left[source, s]
        c.since[target, s] = c.since[source, s]
        c.rate[target, s] = c.rate[source, s]
    c.containers[target] = c.containers[source]
    c.pool[target] = c.pool[source]
    c.head[target] = c.head[source]
    c.tail[target] = c.tail[source]
    c.queued[target] = c.queued[source]
    c.next_s[target] = c.next_s[source]
    c.seen_s[target] = c.seen_s[source]
    c.inflight[target] = c.inflight[source]
    c.inflight_memory[target] = c.inflight_memory[source]
    c.threads[target] = c.threads[source]
    c.used_cores[target] = c.used_cores[source]
    c.load[target] = c.load[source]


@compiled
def marginal_cost(c: Cluster, g: Fleet, k: int, n: int, t: float) -> float:
    """Seconds that call k on node n would add to the sum of all completion times, if no further call came.

    It knows the true work of every call: a bound for benchmarks and a teacher for training, never a policy that serves.
    """
    scratch = len(c.cores) - 1
    copy_node(c, n, scratch)
    c.finish_sum[0] = 0.0
    drain(c, g, scratch)
    without = c.finish_sum[0]
    copy_node(c, n, scratch)
    tail = c.tail[n]
    c.finish_sum[0] = 0.0
    put(c, g, k, scratch, t)
    drain(c, g, scratch)
    if c.queued[n] > 0:
        c.behind[tail] = -1  # the scratch node shares the links of the queue
    cost: float = c.finish_sum[0] - without - t
    return cost


@compiled
def lose_node(c: Cluster, g: Fleet, n: int, t: float, lost: IntArray) -> int:
    """Node n dies at t with all its containers; `lost` receives its unfinished calls, their number is returned."""
    count = 0
    for s in range(c.containers[n]):
        if c.kind[n, s] != IDLE:
            lost[count] = c.call[n, s]
            count += 1
    k = c.head[n]
    for _ in range(c.queued[n]):
        lost[count] = k
        k = c.behind[k]
        count += 1
    c.containers[n] = 0
    c.pool[n] = 0.0
    c.queued[n] = 0
    c.next_s[n] = _NEVER
    c.inflight[n] = 0.0
    c.inflight_memory[n] = 0.0
    c.threads[n] = 0.0
    c.used_cores[n] = 0.0
    c.load[n] = 0.0
    c.seen_s[n] = t
    c.alive[n] = False
    return count
