"""Arrays for the score network: one row a candidate, 26 columns, missing stays NaN until it is replaced by the trained mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.placement.candidates import CandidateView
from tiphys_models.placement.outlook import SCHEMA_OUTLOOK, WIDTH, add_outlook, base_rows
from tiphys_models.placement.schema import FEATURES, NODE_READINGS, SCHEMA

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
    here, on = calls.on(view.rows)
    of = calls.function[here]
    profiles = calls.profiles
    numbers, first = profiles.ravel(), of * profiles.shape[1]  # half the work of an index by row and column
    expected = first + (~calls.warm[here]).view(np.int8)  # seconds warm or cold, then core-seconds warm or cold
    add_outlook(
        encoded,
        np.maximum(view.cores, 1e-3),
        view.memory_capacity_bytes,
        calls.now_s - calls.read_at_s,
        view.inflight_memory_bytes,
        view.idle_instances,
        calls.idle_memory_bytes,
        request.memory_bytes,
        profiles[calls.own_function],
        on,
        calls.now_s - calls.at_s[here],
        numbers.take(expected),
        numbers.take(expected + 2),
        numbers.take(first + 4),
        calls.memory_bytes[here],
        of == calls.own_function,
    )
    return encoded


ENCODERS: dict[str, tuple[int, Callable[[CandidateView], FloatArray]]] = {
    SCHEMA: (len(FEATURES), encode),
    SCHEMA_OUTLOOK: (WIDTH, encode_outlook),
}
"""Encoders by the input version that a model's card names: how many inputs, and the function that makes them."""


def known_encoded(encoded: FloatArray) -> BoolArray:
    """Mask of the encoded rows that have any reading."""
    known = np.asarray(~np.isnan(encoded[:, 0]))
    if not known.all():  # a reading of one kind is nearly always one of all kinds
        known |= ~np.isnan(encoded[:, 1:_NODE]).all(axis=1)
    return known
