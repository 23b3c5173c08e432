"""Arrays for the score network: one row a candidate, 26 columns, missing stays NaN until it is replaced by the trained mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiphys_models.features.arrays import BoolArray, FloatArray
from tiphys_models.features.outlook import SCHEMA_OUTLOOK, WIDTH, add_outlook, base_rows
from tiphys_models.features.readings import CandidateView
from tiphys_models.features.schema import FEATURES, NODE_READINGS, SCHEMA

_NODE = len(NODE_READINGS)


def encode(view: CandidateView) -> FloatArray:
    """float32[candidates, 26] in the order of `FEATURES`; what nobody measured is NaN, never zero."""
    return base_rows(
        view.node_readings,
        view.available_memory_bytes,
        view.inflight,
        view.idle_instances,
        view.request.memory_bytes,
        view.init_time_s,
        len(FEATURES),
    )


def encode_outlook(view: CandidateView) -> FloatArray:
    """float32[candidates, 42]: the same, then `OUTLOOK`. Without any function profile the latter stay NaN as far as they need one."""
    request, calls = view.request, view.calls()
    encoded = base_rows(
        view.node_readings, view.available_memory_bytes, view.inflight, view.idle_instances, request.memory_bytes, view.init_time_s, WIDTH
    )
    place = np.full(max(int(view.rows.max(initial=-1)), int(calls.node_row.max(initial=-1))) + 2, -1, np.int64)
    place[view.rows] = np.arange(len(view.rows))
    on = place[calls.node_row]  # an unknown node is -1: the last entry, which is nobody's
    here = np.flatnonzero(on >= 0)
    of = calls.function[here]
    known = calls.profiles[~np.isnan(calls.profiles).any(axis=1)]
    typical = known.mean(axis=0) if len(known) else np.full(calls.profiles.shape[1], np.nan)
    profiles = np.where(np.isnan(calls.profiles), typical, calls.profiles)
    warm = calls.warm[here]
    add_outlook(
        encoded,
        np.maximum(view.cores, 1e-3),
        view.memory_capacity_bytes,
        calls.now_s - calls.read_at_s,
        view.inflight_memory_bytes,
        view.idle_instances,
        calls.idle_memory_bytes,
        request.memory_bytes,
        profiles[calls.own_function] if calls.own_function >= 0 else typical,
        on[here],
        calls.now_s - calls.at_s[here],
        np.where(warm, profiles[of, 0], profiles[of, 1]),
        np.where(warm, profiles[of, 2], profiles[of, 3]),
        profiles[of, 4],
        calls.memory_bytes[here],
        of == calls.own_function,
    )
    return encoded


ENCODERS: dict[str, tuple[int, Callable[[CandidateView], FloatArray]]] = {
    SCHEMA: (len(FEATURES), encode),
    SCHEMA_OUTLOOK: (WIDTH, encode_outlook),
}
"""By the version a model's card names: how many inputs, and how they are made."""


def known_encoded(encoded: FloatArray) -> BoolArray:
    """The same of rows that are encoded already."""
    return np.asarray(~np.isnan(encoded[:, :_NODE]).all(axis=1))


def known_rows(view: CandidateView) -> BoolArray:
    """Which candidates have any reading of their own: the others get a neutral score, not one made of trained means."""
    return np.asarray(~np.isnan(view.node_readings).all(axis=1))
