"""Workloads: arrival times and functions, from seeds alone or from rows of a trace.

Calls and length of each workload are those of table III of FaaSRank (Yu et al., ACSOS 2021); arrivals follow the shapes of the
rows that their filter keeps in the Azure Functions 2019 trace (Shahrad et al., ATC 2020): one minute of the trace is one
second, 20..40 calls in 60 columns, at most 10 in one. Splits never meet: the random stream is named by (split, workload, seed).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tiphys_models.base.arrays import FloatArray, HashArray, IntArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.hashing import stable_hash
from tiphys_models.base.random import stream
from tiphys_models.placement.sim.functions import FUNCTIONS, NOISE_CV

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

MAX_PER_COLUMN = 10
"""Most calls of one function in one second, before scaling to other cluster sizes."""
REFERENCE_NODES = 10


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A line of table III."""

    name: str
    calls: int
    length_s: int
    paper_cpu_s: float
    """CPU seconds the paper measured: an outcome, since it depends on how many starts were cold."""

    @property
    def paper_load(self) -> float:
        """The table's own "load": CPU seconds over 80 cores times 58.25 s, whatever the length of the row."""
        return self.paper_cpu_s / (80 * 58.25)

    @property
    def true_load(self) -> float:
        """CPU seconds over what 80 cores give in the length of the row: the definition this project uses."""
        return self.paper_cpu_s / (80 * self.length_s)


KINDS: dict[str, WorkloadKind] = {
    kind.name: kind
    for kind in (
        WorkloadKind("SC", 292, 60, 4368.71),
        WorkloadKind("SA", 408, 60, 6196.89),
        WorkloadKind("M1", 209, 37, 2640.94),
        WorkloadKind("M2", 178, 36, 2656.32),
        WorkloadKind("M3", 201, 44, 2656.69),
        WorkloadKind("M4", 201, 35, 2751.87),
        WorkloadKind("M5", 226, 44, 3347.33),
        WorkloadKind("M6", 253, 53, 3492.49),
        WorkloadKind("M7", 256, 52, 3738.29),
        WorkloadKind("M8", 276, 48, 3846.15),
        WorkloadKind("M9", 318, 54, 4026.24),
        WorkloadKind("M10", 295, 59, 4659.86),
    )
}
MULTI: tuple[str, ...] = tuple(f"M{i}" for i in range(1, 11))
"""The ten workloads that carry the published figures."""

BURST = WorkloadKind("burst", 250, 40, float("nan"))
"""A third of all calls within two seconds; ours, not the paper's."""

DISPERSION_QUANTILES: tuple[float, ...] = (0.51, 0.51, 0.61, 0.68, 0.68, 0.83, 1.28, 1.64, 2.03, 3.85, 7.73)
"""Deciles of variance / mean of calls per column over the qualifying rows of the Azure sample. Half of the rows are timers
(below 1: evenly spaced), the others come in bursts."""
SHARE_RANGE = (20.0, 40.0)
"""Calls of one row: the paper's filter; the ten rows of a workload share its calls in proportion."""
TIMER_BATCH = (1, 1, 1, 2)
"""How many calls a timer of the sample sends at once."""
BURST_COLUMNS = (1, 2, 3)
"""How many columns a burst of the sample lasts."""


@dataclass(frozen=True, slots=True)
class CallWorkload:
    """Calls in order of arrival. `noise` multiplies the work of each call; `uid_hash` orders equal nodes, as a pod's uid does."""

    name: str
    split: str
    seed: int
    arrival_s: FloatArray
    function: IntArray
    noise: FloatArray
    uid_hash: HashArray
    function_hash: HashArray
    """One a function, drawn anew for each seed: where hashing has its homes."""

    def __len__(self) -> int:
        return len(self.arrival_s)


def make_workload(name: str, split: Split, seed: int, nodes: int = REFERENCE_NODES) -> CallWorkload:
    """A workload of table III (or `burst`), its calls scaled with the number of nodes."""
    kind = BURST if name == BURST.name else KINDS.get(name)
    if kind is None:
        raise InvalidInput(f"no workload is called {name!r}: there are {', '.join([*KINDS, BURST.name])}")
    rng = stream("placement", split, name, seed)
    copies = max(round(nodes / REFERENCE_NODES), 1)
    part = min(nodes / REFERENCE_NODES, 1.0)
    columns = [_columns(kind, part, rng) for _ in range(copies)]
    return _from_columns(name, split, seed, np.concatenate(columns, axis=1), rng)


def first_calls(workload: CallWorkload, until_s: float) -> CallWorkload:
    """Only the calls that come before this time."""
    keep = workload.arrival_s < until_s
    return replace(workload, **{name: getattr(workload, name)[keep] for name in ("arrival_s", "function", "noise", "uid_hash")})


def from_rows(name: str, split: str, seed: int, rows: IntArray, nodes: int = REFERENCE_NODES) -> CallWorkload:
    """A workload out of one row of calls per second for each of the ten functions, repeated for larger clusters."""
    rng = stream("placement", split, name, seed)
    copies = max(round(nodes / REFERENCE_NODES), 1)
    columns = np.concatenate([rows[rng.permutation(len(FUNCTIONS))] for _ in range(copies)], axis=1)
    lengths = [rows.shape[1]] * copies
    return _from_columns(name, split, seed, columns, rng, lengths)


def _columns(kind: WorkloadKind, part: float, rng: np.random.Generator) -> IntArray:
    """Calls per function and second; exactly `calls` (times `part`) in all."""
    calls = round(kind.calls * part)
    share = rng.uniform(*SHARE_RANGE, len(FUNCTIONS))
    exact = calls * share / share.sum()
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact)[: calls - counts.sum()]] += 1
    if kind.name == BURST.name:
        return _burst(counts, kind.length_s, rng)
    levels = np.linspace(0, 1, len(DISPERSION_QUANTILES))
    rows = []
    for count in counts:
        dispersion = float(np.interp(rng.uniform(), levels, DISPERSION_QUANTILES))
        row = _timer(count, kind.length_s, rng) if dispersion < 1 else _bursty(count, kind.length_s, dispersion, rng)
        rows.append(row)
    return np.array(rows, np.int64)


def _timer(count: int, length_s: int, rng: np.random.Generator) -> IntArray:
    batch = int(rng.choice(TIMER_BATCH))
    ticks = max(count // batch, 1)
    at = ((np.arange(ticks) + rng.uniform()) * length_s / ticks).astype(np.int64) % length_s
    row = np.bincount(at, minlength=length_s) * batch
    row[rng.permutation(at)[: count - ticks * batch]] += 1
    missing = count - int(row.sum())
    np.add.at(row, rng.integers(0, length_s, missing), 1)
    return np.asarray(row, np.int64)


def _bursty(count: int, length_s: int, dispersion: float, rng: np.random.Generator) -> IntArray:
    """Gamma weights over bursts of a few columns: variance / mean of the counts comes near to `dispersion`."""
    width = int(rng.choice(BURST_COLUMNS))
    blocks = -(-length_s // width)
    shape = max(count / length_s / (dispersion - 1), 0.02)
    weight = np.repeat(rng.gamma(shape, 1.0, blocks) + 1e-9, width)[:length_s]
    row = np.zeros(length_s, np.int64)
    for _ in range(count):
        open_weight = np.where(row < MAX_PER_COLUMN, weight, 0.0)
        row[rng.choice(length_s, p=open_weight / open_weight.sum())] += 1
    return row


def _burst(counts: IntArray, length_s: int, rng: np.random.Generator) -> IntArray:
    start = int(rng.integers(length_s // 4, length_s // 2))
    rows = np.zeros((len(counts), length_s), np.int64)
    for function, count in enumerate(counts):
        inside = count // 3
        np.add.at(rows[function], start + rng.integers(0, 2, inside), 1)
        np.add.at(rows[function], rng.integers(0, length_s, count - inside), 1)
    return rows


def _from_columns(
    name: str, split: str, seed: int, columns: IntArray, rng: np.random.Generator, lengths: list[int] | None = None
) -> CallWorkload:
    """Uniform within each second; `columns` may hold several copies of the length side by side."""
    copies = len(lengths) if lengths else max(columns.shape[1] // _length(name, columns.shape[1]), 1)
    length = columns.shape[1] // copies
    function, column = np.nonzero(columns)
    times = columns[function, column]
    function = np.repeat(function, times)
    second = np.repeat(column % length, times)
    arrival = second + rng.uniform(0, 1, len(second))
    order = np.argsort(arrival, kind="stable")
    sigma = np.sqrt(np.log(1 + NOISE_CV**2))
    noise = np.exp(rng.normal(-(sigma**2) / 2, sigma, len(order)))
    space = namespace_of(name, split, seed)
    homes = np.array([stable_hash(space) ^ stable_hash(f"{space}/{f.name}") for f in FUNCTIONS], np.uint64)
    uids = np.array([stable_hash(uid_of(i)) for i in range(len(order))], np.uint64)
    return CallWorkload(name, split, seed, arrival[order], function[order].astype(np.int64), noise, uids, homes)


def _length(name: str, width: int) -> int:
    kind = BURST if name == BURST.name else KINDS.get(name)
    return width if kind is None else kind.length_s


def namespace_of(name: str, split: str, seed: int) -> str:
    """Where the workload's functions live: hash homes follow from it, so they are redrawn with each seed."""
    return f"{split}-{name}-{seed}"


def uid_of(call: int) -> str:
    """What a call is called."""
    return f"call-{call}"
