"""What policies are shown: samples of a certain age, and every own placement newer than the sample reserved on top.

The same rule as `PlacementState`, which the extender uses: in flight and memory count reserved placements, idle instances are
the reported ones less newer placements of the function, readings are as old as they are. A test holds the two together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.placement.schema import COLUMN, NODE_READINGS
from tiphys_models.placement.sim.cluster import IDLE, SimulatedCluster, SimulatedFleet
from tiphys_models.placement.sim.containers import expire
from tiphys_models.placement.sim.cores import move

CPU_TICK_S = 1e-6
"""Counters of processor time are whole ticks. Without, nodes that are equally busy would differ by rounding, and whoever scales
over nodes would blow that up to the full range."""
LOAD_TICK = 0.01
"""/proc/loadavg has two decimals."""
_KERNEL_SHARE = 0.06
_BUFFERS_BYTES = 64.0 * 2**20
_CACHED_PER_READ = 128.0 * 2**10
_USER, _NICE, _KERNEL, _CPU_IDLE = COLUMN["cpu_user"], COLUMN["cpu_nice"], COLUMN["cpu_kernel"], COLUMN["cpu_idle"]
_IOWAIT, _IRQ, _SOFTIRQ, _STEAL = COLUMN["cpu_iowait"], COLUMN["cpu_irq"], COLUMN["cpu_softirq"], COLUMN["cpu_steal"]
_SWITCHES, _LOAD, _FREE = COLUMN["ctx_switches"], COLUMN["cpu_load_avg"], COLUMN["memory_free"]
_BUFFERS, _CACHED = COLUMN["memory_buffers"], COLUMN["memory_cached"]
_READ, _READ_MERGED, _READ_TIME = COLUMN["disk_read"], COLUMN["disk_read_merged"], COLUMN["disk_read_time"]
_WRITE, _WRITE_MERGED, _WRITE_TIME = COLUMN["disk_write"], COLUMN["disk_write_merged"], COLUMN["disk_write_time"]
_RECEIVED, _SENT = COLUMN["net_recv"], COLUMN["net_sent"]


class NodeSamples(NamedTuple):
    """The published sample, the reservations on top of it, and samples that are taken but not yet published."""

    readings: FloatArray
    inflight: FloatArray
    inflight_memory: FloatArray
    idle: FloatArray
    """[functions, nodes] as reported, less `taken`."""
    reported: FloatArray
    taken: FloatArray
    sample_s: FloatArray
    """[nodes]: when the published sample was taken; NaN for a node that has joined since."""
    due: IntArray
    """[2]: number of the next sample to take, and of the next one to publish."""
    open_calls: IntArray
    """Calls placed and not yet seen finished, in order of placement."""
    open_count: IntArray
    open_warm: BoolArray
    """[K]: whether an idle instance was in sight when the call was placed."""
    placed_s: FloatArray
    newest: IntArray
    """[1]: node of the newest placement."""
    ring_readings: FloatArray
    ring_inflight: FloatArray
    ring_memory: FloatArray
    ring_idle: FloatArray


def _zeros(*shape: int) -> FloatArray:
    return np.zeros(shape)


def new_seen(nodes: int, functions: int, calls: int, period_s: float, delay_s: float) -> NodeSamples:
    """An empty cluster, known to be empty."""
    ring = int(np.ceil(delay_s / period_s)) + 2
    return NodeSamples(
        np.full((nodes, len(NODE_READINGS)), np.nan, np.float32), _zeros(nodes), _zeros(nodes), _zeros(functions, nodes),
        _zeros(functions, nodes),
        _zeros(functions, nodes), _zeros(nodes), np.zeros(2, np.int64), np.zeros(calls, np.int64), np.zeros(1, np.int64),
        np.zeros(calls, np.bool_), _zeros(calls) + np.nan, np.full(1, -1, np.int64),
        np.zeros((ring, nodes, len(NODE_READINGS)), np.float32), _zeros(ring, nodes), _zeros(ring, nodes), _zeros(ring, functions, nodes),
    )  # fmt: skip


@compiled
def take_sample(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, t: float, window_s: float) -> None:
    """Read all nodes at t into the ring; the cluster has been advanced to t."""
    slot = seen.due[0] % len(seen.ring_inflight)
    seen.due[0] += 1
    for n in range(len(c.nodes) - 1):
        move(c, n, t)
        expire(c, g, n, t)
        node = c.nodes[n]
        row = seen.ring_readings[slot, n]
        used = np.floor(node.busy / CPU_TICK_S + 0.5) * CPU_TICK_S / window_s
        waiting = min((node.reads + node.writes) * 2e-4 / window_s, max(node.cores - used, 0.0))
        row[_USER] = used * (1 - _KERNEL_SHARE)
        row[_NICE] = 0.0
        row[_KERNEL] = used * _KERNEL_SHARE
        row[_CPU_IDLE] = max(node.cores - used - waiting, 0.0)
        row[_IOWAIT] = waiting
        row[_IRQ] = 0.0
        row[_SOFTIRQ] = (node.received + node.sent) * 1e-9 / window_s
        row[_STEAL] = 0.0
        row[_SWITCHES] = node.switches / window_s
        row[_LOAD] = np.floor(node.load / LOAD_TICK + 0.5) * LOAD_TICK
        row[_FREE] = node.capacity - node.pool
        row[_BUFFERS] = _BUFFERS_BYTES
        row[_CACHED] = node.pool * 0.25 + _CACHED_PER_READ
        row[_READ] = node.reads / window_s
        row[_READ_MERGED] = node.reads * 0.2 / window_s
        row[_READ_TIME] = node.reads * 2e-4 / window_s
        row[_WRITE] = node.writes / window_s
        row[_WRITE_MERGED] = node.writes * 0.4 / window_s
        row[_WRITE_TIME] = node.writes * 4e-4 / window_s
        row[_RECEIVED] = node.received / window_s
        row[_SENT] = node.sent / window_s
        node.busy = 0.0
        node.reads = 0.0
        node.writes = 0.0
        node.received = 0.0
        node.sent = 0.0
        node.switches = 0.0
        seen.ring_inflight[slot, n] = node.inflight
        seen.ring_memory[slot, n] = node.inflight_memory
        seen.ring_idle[slot, :, n] = 0.0
        for s in range(node.containers):
            if c.slots[n, s].kind == IDLE:
                seen.ring_idle[slot, c.slots[n, s].holds, n] += 1.0


@compiled
def publish(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, taken_s: float) -> None:
    """Show the sample taken at `taken_s`, and reserve what has been placed since."""
    slot = seen.due[1] % len(seen.ring_inflight)
    seen.due[1] += 1
    seen.readings[:] = seen.ring_readings[slot]
    seen.inflight[:] = seen.ring_inflight[slot]
    seen.inflight_memory[:] = seen.ring_memory[slot]
    seen.reported[:] = seen.ring_idle[slot]
    seen.taken[:] = 0.0
    seen.sample_s[:] = taken_s
    kept = 0
    for i in range(seen.open_count[0]):
        k = seen.open_calls[i]
        if c.calls[k].finish_s <= taken_s:
            continue
        seen.open_calls[kept] = k
        kept += 1
        if seen.placed_s[k] > taken_s:
            n = c.calls[k].node
            f = g.function[k]
            seen.inflight[n] += 1.0
            seen.inflight_memory[n] += g.functions[f].memory
            seen.taken[f, n] += 1.0
    seen.open_count[0] = kept
    seen.idle[:] = np.maximum(seen.reported - seen.taken, 0.0)


@compiled
def reserve(c: SimulatedCluster, g: SimulatedFleet, seen: NodeSamples, k: int, n: int, t: float) -> None:
    """Call k has been placed on node n at t."""
    f = g.function[k]
    seen.open_warm[k] = seen.idle[f, n] >= 1.0
    seen.placed_s[k] = t
    seen.open_calls[seen.open_count[0]] = k
    seen.open_count[0] += 1
    seen.newest[0] = n
    seen.inflight[n] += 1.0
    seen.inflight_memory[n] += g.functions[f].memory
    seen.taken[f, n] += 1.0
    left = seen.reported[f, n] - seen.taken[f, n]
    seen.idle[f, n] = 0.0 if left < 0 else left  # NaN stays NaN


@compiled
def forget(g: SimulatedFleet, seen: NodeSamples, k: int, n: int) -> None:
    """Call k is no longer on node n, and everybody knows: the node is gone."""
    kept = 0
    for i in range(seen.open_count[0]):
        if seen.open_calls[i] != k:
            seen.open_calls[kept] = seen.open_calls[i]
            kept += 1
    seen.open_count[0] = kept
