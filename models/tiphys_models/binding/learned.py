"""Policies with numbers of their own: the learned score, and a policy for every application.

Artifacts are named tensors: `weights` of the score; a table is kept by an agent, beside its network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.tensors import load_checked
from tiphys_models.binding.kernels import SCORE, Candidates, preference
from tiphys_models.binding.protocol import BindingPolicy
from tiphys_models.binding.streams import Stream
from tiphys_models.features.arrays import FloatArray

SCHEMA = "binding-score/1"
WEIGHTS = (3, 7)
"""Rows: streams that allow less than the one or the other of `kernels.STRICT_MS`, and the others."""
TERMS = ("spare", "latency", "accuracy", "network", "processing", "headroom", "late")
"""What the weights are of: spare share after binding; expected latency over allowed delay; accuracy beyond what is wanted (counts
against, in units of 50 points); network in units of 20 ms; processing in units of
100 ms; use after beyond 80 % (against, times 5); expected share of late queries (against)."""


@dataclass(frozen=True, slots=True)
class ScorePolicy:
    """Seven weights for each of three degrees of strictness."""

    weights: FloatArray
    name: str = "score"

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """See `BindingPolicy`."""
        return preference(SCORE, candidates, self.weights)


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """A policy for every application; others get `otherwise`."""

    by_application: Mapping[str, BindingPolicy]
    otherwise: BindingPolicy
    name: str = "table"

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """See `BindingPolicy`."""
        return self.by_application.get(stream.application, self.otherwise).score(stream, candidates)


def load_score(card_path: Path) -> ScorePolicy:
    """ArtifactRefused names what is wrong."""
    found = load_checked(card_path, SCHEMA, {"weights": WEIGHTS})
    return ScorePolicy(np.asarray(found["weights"], np.float64))
