"""A scaling agent: `answer(seen)` gives a number of pods and a size for every service."""

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.seen import ServiceHistory

__all__ = ["Answers", "FloatArray", "ServiceHistory"]
