"""What every benchmark prints: rows as measured, a summary with intervals, and the claims that a reader may check.

Contract of the JSON object: `bench, version, quick, seeds, wall_seconds, inputs, rows, summary, claims`. A claim that does not
hold is printed all the same; only `--check` turns it into an exit status.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Literal

import numpy as np

_RESAMPLES = 2000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure with the bound it is held to."""

    id: str
    value: float | None
    """None: it could not be measured, which holds no bound."""
    limit: float
    direction: Literal["<=", ">="]

    @property
    def bound(self) -> str:
        """As text: `<= 5`."""
        return f"{self.direction} {self.limit:g}"

    @property
    def holds(self) -> bool:
        """Whether the measured value keeps the bound."""
        if self.value is None or math.isnan(self.value):
            return False
        return self.value <= self.limit if self.direction == "<=" else self.value >= self.limit

    def as_json(self) -> Row:
        """The object in `claims`."""
        return {"id": self.id, "value": self.value, "bound": self.bound, "holds": self.holds}


@dataclass(frozen=True, slots=True)
class Result:
    """A finished benchmark."""

    bench: str
    quick: bool
    seeds: tuple[int, ...]
    wall_seconds: float
    inputs: Mapping[str, Any]
    rows: Sequence[Row]
    summary: Sequence[Row]
    claims: Sequence[Claim]
    version: str = field(default_factory=lambda: metadata.version("tiphys"))

    def as_json(self) -> Row:
        """The one object that `--json` prints."""
        return {
            "bench": self.bench,
            "version": self.version,
            "quick": self.quick,
            "seeds": list(self.seeds),
            "wall_seconds": round(self.wall_seconds, 1),
            "inputs": dict(self.inputs),
            "rows": list(self.rows),
            "summary": list(self.summary),
            "claims": [claim.as_json() for claim in self.claims],
        }

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean of repeated measurements with a 95 % bootstrap interval; both ends are the mean where there is only one."""

    mean: float
    ci95_low: float
    ci95_high: float
    n: int

    def as_json(self) -> Row:
        """The keys of a summary object."""
        return asdict(self)


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """Bootstrap over repeated measurements, the same every time it is asked."""
    if not values:
        raise ValueError("an interval needs at least one measurement")
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) == 1:
        return Interval(mean, mean, mean, 1)
    rng = np.random.default_rng([seed, len(array)])
    means = array[rng.integers(0, len(array), (_RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(mean, float(low), float(high), len(array))


def median(values: Sequence[float]) -> float | None:
    """The middle one; None of nothing."""
    return statistics.median(values) if values else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest measured value that at least `percent` of all do not exceed: a call that really happened."""
    if not values:
        raise ValueError("a percentile needs at least one measurement")
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
