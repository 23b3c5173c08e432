"""Arrays for the score network: one row a candidate, 26 columns, missing stays NaN until it is replaced by the trained mean."""

from __future__ import annotations

import numpy as np

from tiphys_models.features.arrays import BoolArray, FloatArray
from tiphys_models.features.outlook import base_rows
from tiphys_models.features.readings import CandidateView
from tiphys_models.features.schema import FEATURES


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


def known_rows(view: CandidateView) -> BoolArray:
    """Which candidates have any reading of their own: the others get a neutral score, not one made of trained means."""
    return np.asarray(~np.isnan(view.node_readings).all(axis=1))
