"""Rows of the Azure Functions 2019 trace as workloads: a minute of the trace is a second.

Which rows: those with 20..40 calls in the first 60 columns and at most 10 in one, FaaSRank's own filter. Ten of them are drawn for
each seed, and given to the ten functions in random order; run times stay those of the functions (the trace's own are of other
functions, and say nothing about parallelism).
"""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from tiphys_models.base.arrays import IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.random import stream
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.workloads import MAX_PER_COLUMN, CallWorkload, from_rows

FILE = "invocation_traces.csv"
COLUMNS = 60
FEWEST, MOST = 20, 40


@dataclass(frozen=True, slots=True)
class TraceRows:
    """Rows of a trace that may be used."""

    names: tuple[str, ...]
    counts: IntArray
    """int64[rows, 60]: calls per second."""
    total: int
    """Rows in the file."""
    dropped_as_seen: int
    """Qualifying rows that a model's card lists as seen in training."""
    sha256: str


def read_trace(directory: Path, seen: Collection[str] = ()) -> TraceRows:
    """Qualifying rows of a directory as published; InvalidInput says what is wrong with it."""
    path = directory / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"--trace-dir: cannot read {path}: {error.strerror}") from error
    rows = list(csv.reader(content.decode("utf-8", "replace").splitlines()))
    wanted = [str(c) for c in range(1, COLUMNS + 1)]
    if not rows or any(column not in rows[0] for column in wanted):
        raise InvalidInput(f"--trace-dir: {path} has no columns 1..{COLUMNS}, one a minute")
    places = [rows[0].index(column) for column in wanted]
    names, counts, dropped = [], [], 0
    for line, row in enumerate(rows[1:], 2):
        try:
            numbers = [int(row[p]) for p in places]
        except (ValueError, IndexError) as error:
            raise InvalidInput(f"--trace-dir: line {line} of {path} has not {COLUMNS} whole numbers") from error
        if not (FEWEST <= sum(numbers) <= MOST and max(numbers) <= MAX_PER_COLUMN and min(numbers) >= 0):
            continue
        if row[0] in seen:
            dropped += 1
            continue
        names.append(row[0])
        counts.append(numbers)
    if len(names) < len(FUNCTIONS):
        raise InvalidInput(
            f"--trace-dir: {len(names)} rows of {path} have {FEWEST}..{MOST} calls and at most {MAX_PER_COLUMN} a column; "
            f"a workload needs {len(FUNCTIONS)}"
        )
    return TraceRows(tuple(names), np.array(counts, np.int64), len(rows) - 1, dropped, sha256(content).hexdigest())


def trace_workload(trace: TraceRows, seed: int, nodes: int = 10) -> CallWorkload:
    """Ten rows drawn for this seed."""
    chosen = stream("placement", "trace", trace.sha256, seed).choice(len(trace.names), len(FUNCTIONS), replace=False)
    return from_rows("azure", "test", seed, trace.counts[chosen], nodes)
