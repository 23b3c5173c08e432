"""The forward pass of a score network as a plain function of arrays: numpy when it serves, compiled in the simulator."""

from __future__ import annotations

import numpy as np

from tiphys_models.features.arrays import FloatArray


def score_rows(
    encoded: FloatArray,
    mean: FloatArray,
    scale: FloatArray,
    clip: float,
    weight_0: FloatArray,
    bias_0: FloatArray,
    weight_1: FloatArray,
    bias_1: FloatArray,
    weight_2: FloatArray,
    bias_2: FloatArray,
) -> FloatArray:
    """float32[rows, inputs] -> float64[rows]; a missing input counts as the trained mean."""
    hidden = (encoded - mean) / scale
    hidden = np.where(np.isnan(hidden), np.float32(0), np.minimum(np.maximum(hidden, np.float32(-clip)), np.float32(clip)))
    hidden = np.tanh(hidden @ weight_0 + bias_0)
    hidden = np.tanh(hidden @ weight_1 + bias_1)
    return (hidden @ weight_2 + bias_2)[:, 0].astype(np.float64)
