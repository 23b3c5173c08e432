"""Scores kept between calls: a row-wise policy judges a node again only after something on that node has changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np

from tiphys_models.features.arrays import FloatArray, IntArray
from tiphys_models.features.readings import PlacementRequest
from tiphys_models.placement.state import PlacementState
from tiphys_models.placement.table import grown
from tiphys_models.policies.protocol import PlacementPolicy

_Key = tuple[str, str, str, int, int, tuple[str, ...], float]


_REFRESHED = 64


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy that judges encoded rows, each of another request if need be."""

    def score_encoded(self, encoded: FloatArray) -> FloatArray:
        """One score a row."""
        ...


@dataclass(slots=True)
class _Kept:
    batch: BatchPolicy | None
    request: PlacementRequest
    init_time_s: float
    scores: FloatArray
    versions: IntArray


class ScoreCache:
    """Kept scores by (policy, weights, function, size); bounded, least recently used goes first."""

    def __init__(self, max_entries: int = 256) -> None:
        self._max_entries = max_entries
        self._kept: dict[_Key, _Kept] = {}

    def score(self, policy: PlacementPolicy, state: PlacementState, request: PlacementRequest, rows: IntArray) -> FloatArray:
        """One score a row, as `policy.score` would give now; rows must be known."""
        if not policy.row_wise:
            return policy.score(state.view(request, rows), state.memory())
        entry = self._entry(policy, state, request)
        scores, versions = entry.scores, entry.versions
        stale = rows[versions[rows] != state.nodes.version[rows]]
        if len(stale):
            view = state.view(request, stale)
            scores[stale] = policy.score(view, state.memory())
            versions[stale] = view.version
        return scores[rows]

    def refresh(self, state: PlacementState, row: int) -> None:
        """Judge one row again for everybody who keeps scores of the same network, in one pass.

        A reservation makes its row stale for every function. Judged together right after the answer, the row costs one pass of the
        network; judged call by call, each of the next calls would pay for a pass of its own while its scheduler waits.
        """
        entries = [entry for entry in islice(reversed(self._kept.values()), _REFRESHED) if entry.batch is not None]
        newest = entries[0].batch if entries else None
        if newest is None:
            return
        kept = [entry for entry in entries if entry.batch is newest and row < len(entry.scores)]
        encoded = state.encode_row(row, [entry.request for entry in kept], [entry.init_time_s for entry in kept])
        version = state.nodes.version[row]
        for entry, score in zip(kept, newest.score_encoded(encoded).tolist(), strict=True):
            entry.scores[row] = score
            entry.versions[row] = version

    def _entry(self, policy: PlacementPolicy, state: PlacementState, request: PlacementRequest) -> _Kept:
        init_time_s = state.init_time_s(request.function)
        key = (
            policy.name, policy.digest, request.function, request.cpu_milli, request.memory_bytes, request.images,
            -1.0 if math.isnan(init_time_s) else init_time_s,
        )  # fmt: skip
        entry = self._kept.pop(key, None)
        capacity = state.nodes.capacity
        if entry is None:
            if len(self._kept) >= self._max_entries:
                del self._kept[next(iter(self._kept))]
            batch = policy if isinstance(policy, BatchPolicy) else None
            entry = _Kept(batch, request, init_time_s, np.full(capacity, np.nan), np.full(capacity, -1, np.int64))
        elif len(entry.scores) < capacity:
            entry.scores, entry.versions = grown(entry.scores, capacity, math.nan), grown(entry.versions, capacity, -1)
        self._kept[key] = entry
        return entry
