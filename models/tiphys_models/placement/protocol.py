"""Score - Rank - Select: a policy only scores."""

from __future__ import annotations

from typing import Protocol

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory


class PlacementPolicy(Protocol):
    """Scores the candidates of one request, the same object in simulator and extender.

    A score is a float, larger is better; NaN says "I know nothing about this node". Nothing is written, nothing is drawn at random.
    """

    @property
    def name(self) -> str:
        """The registry name, as in `SchedulingPolicy.spec.policy`."""
        ...

    @property
    def epsilon(self) -> float:
        """Scores closer than this are equal: their order is decided by a hash, so that equal nodes never herd."""
        ...

    @property
    def row_wise(self) -> bool:
        """Whether a node's score depends only on its own row and the request: such scores are kept until the row changes."""
        ...

    @property
    def digest(self) -> str:
        """sha256 of the weights that decide; empty for policies without weights."""
        ...

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """One score a candidate, in the order of `view.rows`."""
        ...
