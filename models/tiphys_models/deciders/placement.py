"""A placement policy: `score(view, memory)` gives one number a candidate, the largest is best."""

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory, PlacementRequest
from tiphys_models.placement.schema import NODE_READINGS

__all__ = ["NODE_READINGS", "CandidateView", "FloatArray", "PlacementMemory", "PlacementRequest"]
