"""What policies saw, kept as little as possible: whoever asks later gets the inputs as they were."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.features.arrays import FloatArray
from tiphys_models.features.readings import INFLIGHT, MEMORY_CAPACITY, MEMORY_REQUESTED
from tiphys_models.features.schema import COLUMN, FEATURES, NODE_READINGS


class Glimpse(NamedTuple):
    """A copy of what some rows showed at one moment."""

    readings: FloatArray
    numbers: FloatArray
    idle_instances: FloatArray
    requested_memory_bytes: int
    init_time_s: float
    inputs: FloatArray | None = None
    """What a model read that looks at more than these columns: a row each, in the order of `INPUT_NAMES`."""

    def features(self) -> FloatArray:
        """float32[rows, 26] as the encoder gives them, or all that the model read."""
        if self.inputs is not None:
            return self.inputs
        encoded = np.full((len(self.readings), len(FEATURES)), np.nan, np.float32)
        encoded[:, : len(NODE_READINGS)] = self.readings
        encoded[:, COLUMN["avail_memory"]] = self.numbers[:, MEMORY_CAPACITY] - self.numbers[:, MEMORY_REQUESTED]
        encoded[:, COLUMN["inflight"]] = self.numbers[:, INFLIGHT]
        encoded[:, COLUMN["warm"]] = self.idle_instances
        encoded[:, COLUMN["requested_memory"]] = self.requested_memory_bytes
        encoded[:, COLUMN["init_time"]] = self.init_time_s
        return encoded
