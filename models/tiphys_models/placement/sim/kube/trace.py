"""All rows of the Azure Functions 2019 sample as a world of pods: an hour in which minutes are minutes.

Calls, run times and memory are the trace's. It says nothing of starts: each row has the start, and what a first run takes longer, of one
of the ten functions, by a hash of its name. A call uses one core: the trace tells nobody's parallelism.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.hashing import stable_hash
from tiphys_models.base.random import stream
from tiphys_models.placement.sim.azure import COLUMNS, FILE
from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.workloads import CallWorkload

NAME = "azure-500"
DURATIONS, MEMORY = "duration_traces.csv", "memory_traces.csv"
_MINUTE_S = 60.0
_LEAST_RUN_S = 0.001
_QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""
_SPREADS = (0.1, 1.5)
"""Least and most standard deviation of the logarithm of a call's run time that is taken from the quartiles of a row."""


@dataclass(frozen=True, slots=True)
class TracedFunctions:
    """Rows of the trace as functions."""

    models: tuple[FunctionModel, ...]
    spread: FloatArray
    """Standard deviation of the logarithm of each one's run time."""
    counts: IntArray
    """int64[functions, 60]: calls a minute."""


def has_durations(directory: Path) -> bool:
    """Whether a directory has more than calls: run times and memory, too."""
    return all((directory / name).exists() for name in (DURATIONS, MEMORY))


@lru_cache(maxsize=2)
def read_functions(directory: Path) -> TracedFunctions:
    """Every row that is in all three files; InvalidInput says what is wrong with them."""
    calls, durations, memory = (_rows(directory / name) for name in (FILE, DURATIONS, MEMORY))
    models, spread, counts = [], [], []
    for name, row in calls.items():
        if name not in durations or name not in memory:
            continue
        try:
            counts.append([int(row[str(minute)]) for minute in range(1, COLUMNS + 1)])
            run_s = max(float(durations[name]["Average"]) / 1000, _LEAST_RUN_S)
            quartiles = [max(float(durations[name][f"percentile_Average_{q}"]), 1.0) for q in (25, 75)]
            mib = float(memory[name]["AverageAllocatedMb"])
        except (KeyError, ValueError) as error:
            raise InvalidInput(f"--trace-dir: row {name} of {directory} cannot be read: {error}") from error
        models.append(_model(name, run_s, mib))
        spread.append(float(np.clip(np.log(quartiles[1] / quartiles[0]) / _QUARTILES, *_SPREADS)))
    if not models:
        raise InvalidInput(f"--trace-dir: no row is in all of {FILE}, {DURATIONS}, {MEMORY} of {directory}")
    return TracedFunctions(tuple(models), np.array(spread), np.array(counts, np.int64))


def hour(traced: TracedFunctions, seed: int) -> CallWorkload:
    """All calls of the hour; the seed draws when in its minute each one comes, how long it runs, and who is first among equals."""
    rng = stream("placement", "trace-hour", seed)
    function, minute = np.nonzero(traced.counts)
    times = traced.counts[function, minute]
    function = np.repeat(function, times)
    arrival_s = (np.repeat(minute, times) + rng.uniform(0, 1, len(function))) * _MINUTE_S
    order = np.argsort(arrival_s, kind="stable")
    function = function[order].astype(np.int64)
    spread = traced.spread[function]
    noise = np.exp(rng.normal(0.0, 1.0, len(order)) * spread - spread**2 / 2)
    uids = np.array([stable_hash(f"{seed}/call-{i}") for i in range(len(order))], np.uint64)
    homes = np.array([stable_hash(f"{NAME}/{seed}/{model.name}") for model in traced.models], np.uint64)
    return CallWorkload(NAME, "test", seed, arrival_s[order], function, noise, uids, homes)


def _model(name: str, run_s: float, mib: float) -> FunctionModel:
    like = FUNCTIONS[stable_hash(f"azure/{name}") % len(FUNCTIONS)]
    longer_s = max(like.cold_s - like.init_s - like.warm_s, 0.0)
    memory_mib = max(int(np.ceil(mib)), 1)
    return FunctionModel(name, memory_mib, like.init_s + run_s + longer_s, run_s, like.init_s, 1, 0.0, 0.0, 0.0, 0.0)


def _rows(path: Path) -> Mapping[str, Mapping[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {row["HashFunction"]: row for row in csv.DictReader(file)}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"--trace-dir: cannot read {path}: {type(error).__name__}") from error
