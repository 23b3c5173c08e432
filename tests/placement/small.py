"""Workloads small enough for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.sim.functions import FunctionModel
from tiphys_models.placement.sim.workloads import CallWorkload, make_workload


def small_workload(calls: int = 60, seed: int = 0) -> CallWorkload:
    """The first calls of a workload of the training split."""
    whole = make_workload("M2", "train", seed)
    arrays = {name: getattr(whole, name)[:calls] for name in ("arrival_s", "function", "noise", "uid_hash")}
    return replace(whole, **arrays)


def steady(arrival_s: FloatArray, work: FloatArray) -> CallWorkload:
    """Calls of one function with the given work."""
    n = len(arrival_s)
    return CallWorkload("M1", "train", 0, arrival_s, np.zeros(n, np.int64), work, np.arange(n, dtype=np.uint64), np.zeros(1, np.uint64))


def plain_function(memory_mib: int) -> FunctionModel:
    """One second of one core, warm or cold."""
    return FunctionModel("plain", memory_mib, 1.0, 1.0, 0.0, 1, 0, 0, 0, 0)
