"""The arithmetic of the rules, as plain functions of arrays.

A served policy calls these with numpy; the simulator compiles the very same functions. So they keep to what a compiler of
numpy code understands: arrays and numbers in, a new array out, no objects, no keyword arguments.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement.schema import COLUMN

_CPU_IDLE = COLUMN["cpu_idle"]
_MODES = COLUMN["ctx_switches"]  # the columns before it are the modes of the processor
_LOAD = COLUMN["cpu_load_avg"]
_FREE = COLUMN["memory_free"]
_READ = COLUMN["disk_read"]
_WRITE = COLUMN["disk_write"]
_RECEIVED = COLUMN["net_recv"]
_SENT = COLUMN["net_sent"]
_TERMS = 7


def hashing(
    position: IntArray, known_nodes: int, home: int, step_inverse: int, available_bytes: FloatArray, wanted_bytes: float
) -> FloatArray:
    """Minus the probe that reaches each position; nodes without room share the last place."""
    probe = ((position - home) * step_inverse % known_nodes) * 1.0
    return -np.where(available_bytes >= wanted_bytes, probe, known_nodes + 1.0)


def round_robin(position: IntArray, newest_position: int, known_nodes: int) -> FloatArray:
    """Minus the distance from the position after the newest placement."""
    return ((position - newest_position - 1) % known_nodes) * -1.0


def least_connections(inflight: FloatArray) -> FloatArray:
    """Minus the calls in flight."""
    return -inflight


def greedy(position: IntArray, known_nodes: int, inflight: FloatArray, available_bytes: FloatArray, wanted_bytes: float) -> FloatArray:
    """Minus the position; nodes without room come after all others, by calls in flight."""
    return -np.where(available_bytes >= wanted_bytes, position * 1.0, known_nodes + inflight)


def static_rank(
    weights: FloatArray,
    readings: FloatArray,
    cores: FloatArray,
    idle_instances: FloatArray,
    available_bytes: FloatArray,
    wanted_bytes: float,
) -> FloatArray:
    """The weighted sum of seven terms, each scaled to [0, 1] over the nodes; a missing one counts as half."""
    total = np.zeros(len(cores))
    for term in range(_TERMS):
        if term == 0:
            raw = readings[:, _CPU_IDLE] / np.maximum(readings[:, :_MODES].sum(axis=1), 1e-9) * 1.0
        elif term == 1:
            raw = readings[:, _FREE] * 1.0
        elif term == 2:
            raw = (readings[:, _READ] + readings[:, _WRITE]) * -1.0
        elif term == 3:
            raw = (readings[:, _RECEIVED] + readings[:, _SENT]) * -1.0
        elif term == 4:
            raw = readings[:, _LOAD] / np.maximum(cores, 1e-3) * -1.0
        elif term == 5:
            raw = idle_instances * 1.0
        else:
            raw = np.floor(available_bytes / max(wanted_bytes, 1.0))
        if weights[term] != 0:
            total += weights[term] * scaled(raw.astype(np.float64))
    return total


def scaled(term: FloatArray) -> FloatArray:
    """The term rescaled to [0, 1] over the nodes; one half where it is missing or equal everywhere."""
    lowest = term.min()
    if not np.isnan(lowest):  # nothing is missing, which is the usual case
        spread = term.max() - lowest
        return (term - lowest) / spread if spread > 0 else np.full(len(term), 0.5)
    missing = np.isnan(term)
    lowest = np.where(missing, np.inf, term).min()
    spread = np.where(missing, -np.inf, term).max() - lowest
    if not spread > 0:
        return np.full(len(term), 0.5)
    return np.where(missing, 0.5, (term - lowest) / spread)


def warm_first(idle_instances: FloatArray, image_present: BoolArray, inflight: FloatArray, cores: FloatArray) -> FloatArray:
    """A step of 1,000 for each degree of warmth, less the calls in flight per core, this one included."""
    tier = np.where(idle_instances >= 1, 2.0, np.where(image_present, 1.0, 0.0))  # a missing count is not warm
    return tier * 1000 - np.minimum((inflight + 1) / np.maximum(cores, 1e-3), 999.0)


def most_allocated(
    cpu_requested: FloatArray, cpu: FloatArray, cpu_wanted: float, memory_requested: FloatArray, memory: FloatArray, memory_wanted: float
) -> FloatArray:
    """Share of a node that is requested once this pod is there, CPU and memory with equal weights, as in kube-scheduler's MostAllocated."""
    of_cpu = np.minimum((cpu_requested + cpu_wanted) / np.maximum(cpu, 1e-9), 1.0)
    of_memory = np.minimum((memory_requested + memory_wanted) / np.maximum(memory, 1e-9), 1.0)
    return (of_cpu + of_memory) / 2
