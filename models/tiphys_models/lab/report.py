"""What every benchmark prints: rows as measured, a summary with intervals, and the claims that a reader may check.

Contract of the JSON object: `bench, version, quick, seeds, wall_seconds, inputs, rows, summary, claims`. A claim that does not
hold is printed all the same; only `--check` turns it into an exit status.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Literal

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trivial:
    """The policy that a claim must not be passed by, with its value of the same figure."""

    policy: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure with the bound it is held to."""

    id: str
    value: float | None
    """None: it could not be measured, which holds no bound."""
    limit: float
    direction: Literal["<=", ">="]
    trivial: Trivial | None = None
    """None: the claim is not about a learned decider."""

    @property
    def bound(self) -> str:
        """The bound as text: `<= 5`."""
        return f"{self.direction} {self.limit:g}"

    @property
    def holds(self) -> bool:
        """Whether the measured value keeps the bound."""
        return self._kept_by(self.value)

    @property
    def void(self) -> bool:
        """Whether the trivial policy keeps the bound, too: then the claim shows nothing about learning."""
        return self.trivial is not None and self._kept_by(self.trivial.value)

    @property
    def verdict(self) -> str:
        """`holds`, `does not hold`, or what makes it void."""
        held = "holds" if self.holds else "does not hold"
        return f"{held}; void: {self.trivial.policy} passes" if self.trivial is not None and self.void else held

    def as_json(self) -> Row:
        """The object in `claims`."""
        made: Row = {"id": self.id, "value": _finite(self.value), "bound": self.bound, "holds": self.holds}
        if self.trivial is not None:
            made |= {"trivial": {"policy": self.trivial.policy, "value": _finite(self.trivial.value)}, "void": self.void}
        return made

    def _kept_by(self, value: float | None) -> bool:
        if value is None or math.isnan(value):
            return False
        return value <= self.limit if self.direction == "<=" else value >= self.limit


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Result:
    """A finished benchmark: what it read, its rows, summary and claims."""

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


def median(values: Sequence[float]) -> float | None:
    """The middle one; None of nothing."""
    return statistics.median(values) if values else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest measured value that at least `percent` of all do not exceed: a call that really happened."""
    if not values:
        raise ValueError("a percentile needs at least one measurement")
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
