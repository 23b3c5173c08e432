"""Node readings made of Prometheus' instant vectors; values that cannot be true are refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.calls import PROFILE_QUANTITIES, FunctionProfile
from tiphys_models.placement.schema import COLUMN, NODE_READINGS

_LARGEST = 1e18  # beyond any byte count or rate of a machine: a wrong unit or a broken exporter


class Sample(NamedTuple):
    """One series of an instant vector."""

    labels: tuple[str, ...]
    value: float
    at_s: float


@dataclass(frozen=True, slots=True)
class ReadingTable:
    """Readings of many nodes: float32[nodes, 21], NaN where missing, with the time of each node's oldest sample."""

    names: tuple[str, ...]
    values: FloatArray
    read_at_s: FloatArray
    rejected: Mapping[tuple[str, str], int]
    """How many samples were refused, by (feature, reason)."""


class ReadingTableBuilder:
    """Collects one query after another."""

    def __init__(self) -> None:
        self._rows: dict[str, FloatArray] = {}
        self._at_s: dict[str, float] = {}
        self._rejected: Counter[tuple[str, str]] = Counter()

    def add(self, feature: str, samples: Sequence[Sample]) -> None:
        """All samples of one feature; the first label is the node."""
        column = COLUMN[feature]
        seen: set[str] = set()
        for sample in samples:
            node = sample.labels[0]
            if reason := _refusal(sample.value, node, seen):
                self._rejected[feature, reason] += 1
                continue
            seen.add(node)
            row = self._rows.get(node)
            if row is None:
                row = self._rows[node] = np.full(len(NODE_READINGS), np.nan, np.float32)
            # rate() of iowait may come out a little below zero: the kernel's counter runs backwards
            row[column] = max(sample.value, 0.0)
            self._at_s[node] = min(self._at_s.get(node, math.inf), sample.at_s)

    def build(self) -> ReadingTable:
        """The table of all readings collected so far."""
        names = tuple(self._rows)
        values = np.array([self._rows[n] for n in names], np.float32).reshape(len(names), len(NODE_READINGS))
        return ReadingTable(names, values, np.array([self._at_s[n] for n in names]), dict(self._rejected))


def _refusal(value: float, node: str, seen: set[str]) -> str:
    if not node:
        return "no-node-label"
    if node in seen:
        return "duplicate-series"
    if not math.isfinite(value):
        return "not-finite"
    if value < -1e-3:
        return "negative"
    if value > _LARGEST:
        return "too-large"
    return ""


def profiles_of(samples: Sequence[Sample]) -> dict[str, FunctionProfile]:
    """Function profiles out of (function, quantity) samples; a function of which any quantity is missing or absurd has none."""
    found: dict[str, dict[str, float]] = {}
    for sample in samples:
        function, quantity = sample.labels
        if function and quantity in PROFILE_QUANTITIES and 0 <= sample.value <= _LARGEST:
            found.setdefault(function, {})[quantity] = sample.value
    return {
        function: FunctionProfile(*(values[quantity] for quantity in PROFILE_QUANTITIES))
        for function, values in found.items()
        if len(values) == len(PROFILE_QUANTITIES)
    }


def parse_vector(answer: Mapping[str, Any], labels: Sequence[str]) -> list[Sample]:
    """The samples of /api/v1/query; raises KeyError, TypeError or ValueError for anything else."""
    data = answer["data"]
    if answer["status"] != "success" or data["resultType"] != "vector":
        raise ValueError(f"status {answer['status']!r}, type {data.get('resultType')!r}")
    return [
        Sample(tuple(intern(str(r["metric"].get(label, ""))) for label in labels), float(r["value"][1]), float(r["value"][0]))
        for r in data["result"]
    ]
