"""Score - Rank - Select: a policy only scores."""

from __future__ import annotations

from typing import Protocol, cast

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.waiting import NotYet


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


class PatientPolicy(PlacementPolicy, Protocol):
    """A policy that may find that waiting is better than any node now.

    Whoever asks keeps those who wait in the order in which they came, asks again when a call has ended, when readings come and every
    `waiting.LOOK_AGAIN_S`, and asks nobody to wait who has waited for `waiting.LONGEST_S`: the bound is the asker's, not the policy's.
    """

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """Whether the call had better wait than go to the candidate `best`, the first by these scores of `score` for the same view;
        `before` calls of its function wait in front of it, each for an instance of its own. None: it goes now."""
        ...


def patient(policy: PlacementPolicy) -> PatientPolicy | None:
    """The policy, if it is one that may wait."""
    return cast("PatientPolicy", policy) if callable(getattr(policy, "not_yet", None)) else None
