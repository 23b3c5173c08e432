"""What policies saw, kept as little as possible: whoever asks later gets the inputs as they were."""

from __future__ import annotations

from typing import NamedTuple

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import INFLIGHT, MEMORY_CAPACITY, MEMORY_REQUESTED
from tiphys_models.placement.outlook import base_rows
from tiphys_models.placement.schema import FEATURES


class Glimpse(NamedTuple):
    """A copy of what some rows showed at one moment."""

    readings: FloatArray
    numbers: FloatArray
    idle_instances: FloatArray
    requested_memory_bytes: int
    init_time_s: float
    inputs: FloatArray | None = None
    """What a model read that looks at more than these columns: a row each, in the order of `INPUT_NAMES`."""

    estimate: FloatArray | None = None
    """What a placement was expected to cost, in seconds: a row each, in the order of `estimator.PART_NAMES`."""

    def features(self) -> FloatArray:
        """float32[rows, 26] as the encoder gives them, or all that the model read."""
        if self.inputs is not None:
            return self.inputs
        available_bytes = self.numbers[:, MEMORY_CAPACITY] - self.numbers[:, MEMORY_REQUESTED]
        inflight, wanted_bytes = self.numbers[:, INFLIGHT], self.requested_memory_bytes
        return base_rows(self.readings, available_bytes, inflight, self.idle_instances, wanted_bytes, self.init_time_s, len(FEATURES))
