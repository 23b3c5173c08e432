"""Scores kept between calls: a row-wise policy judges a node again only after something on that node has changed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.protocol import PlacementPolicy
from tiphys_models.placement.state import PlacementState
from tiphys_models.placement.table import grown

_ROW_BYTES = 16
"""A score and a version."""
_Key = tuple[str, str, str, int, int, tuple[str, ...], bool, float]


@dataclass(slots=True)
class _Kept:
    scores: FloatArray
    versions: IntArray


class ScoreCache:
    """Kept scores by (policy, weights, function, size); bounded in number and bytes, least recently used goes first.

    An entry is as long as the table of nodes, so the bytes bound what many functions on many nodes may take.
    """

    def __init__(self, max_entries: int = 256, max_bytes: int = 8 * 2**20) -> None:
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._kept: dict[_Key, _Kept] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def score(self, policy: PlacementPolicy, state: PlacementState, request: PlacementRequest, rows: IntArray) -> FloatArray:
        """One score a row, as `policy.score` would give now; rows must be known."""
        if not policy.row_wise:
            return policy.score(state.view(request, rows), state.memory())
        entry = self._entry(policy, state, request)
        scores, versions = entry.scores, entry.versions
        stale = rows[versions[rows] != state.nodes.version[rows]]
        if len(stale):
            scores[stale] = policy.score(state.view(request, stale), state.memory())
            versions[stale] = state.nodes.version[stale]
        return scores[rows]

    def _entry(self, policy: PlacementPolicy, state: PlacementState, request: PlacementRequest) -> _Kept:
        init_time_s = state.init_time_s(request.function)
        key = (
            policy.name, policy.digest, request.function, request.cpu_milli, request.memory_bytes, request.images, request.protected,
            -1.0 if math.isnan(init_time_s) else init_time_s,
        )  # fmt: skip
        entry = self._kept.pop(key, None)
        capacity = state.nodes.capacity
        if entry is None:
            most = max(min(self._max_entries, self._max_bytes // (_ROW_BYTES * capacity)), 1)
            while len(self._kept) >= most:
                del self._kept[next(iter(self._kept))]
            entry = _Kept(np.full(capacity, np.nan), np.full(capacity, -1, np.int64))
        elif len(entry.scores) < capacity:
            entry.scores, entry.versions = grown(entry.scores, capacity, math.nan), grown(entry.versions, capacity, -1)
        self._kept[key] = entry
        return entry
