"""Arrays for the score network: one row a candidate, 26 columns, missing stays NaN until it is replaced by the trained mean."""

from __future__ import annotations

import numpy as np

from tiphys_models.features.arrays import BoolArray, FloatArray
from tiphys_models.features.readings import CandidateView
from tiphys_models.features.schema import COLUMN, FEATURES, NODE_READINGS

_NODE = len(NODE_READINGS)


def encode(view: CandidateView) -> FloatArray:
    """float32[candidates, 26] in the order of `FEATURES`; what nobody measured is NaN, never zero."""
    encoded = np.empty((len(view.rows), len(FEATURES)), dtype=np.float32)
    encoded[:, :_NODE] = view.node_readings
    encoded[:, COLUMN["avail_memory"]] = view.available_memory_bytes
    encoded[:, COLUMN["inflight"]] = view.inflight
    encoded[:, COLUMN["warm"]] = view.idle_instances
    encoded[:, COLUMN["requested_memory"]] = view.request.memory_bytes
    encoded[:, COLUMN["init_time"]] = view.init_time_s
    return encoded


def known_encoded(encoded: FloatArray) -> BoolArray:
    """The same of rows that are encoded already."""
    return np.asarray(~np.isnan(encoded[:, :_NODE]).all(axis=1))


def known_rows(view: CandidateView) -> BoolArray:
    """Which candidates have any reading of their own: the others get a neutral score, not one made of trained means."""
    return np.asarray(~np.isnan(view.node_readings).all(axis=1))
