"""A stream policy: `score(stream, candidates)` gives one number an offer, the largest is best, minus infinity declines."""

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.kernels import Candidates
from tiphys_models.streams.stream import Stream

__all__ = ["Candidates", "FloatArray", "Stream"]
