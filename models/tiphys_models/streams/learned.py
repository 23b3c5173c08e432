"""Policies with numbers of their own: the learned score, and a policy for every application.

Artifacts are named tensors: `weights` of the score; a table is kept by an agent, beside its network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.kernels import SCORE, WEIGHTS, Candidates, preference
from tiphys_models.streams.protocol import BindingPolicy
from tiphys_models.streams.stream import Stream

SCHEMA = "binding-score/4"
TERMS = (
    "price", "price-accuracy", "price-accuracy2", "price-quick", "price-fast", "full", "full-quick", "full-fast", "late", "size",
    "accuracy", "accuracy2", "quick", "fast", "processing", "near", "tight", "latency", "decline", "crowd",
)  # fmt: skip
"""What the weights of `kernels.worth` are of. `price` to `full-fast` make up the price: times use after binding, or times use beyond
80 %. `late`: expected share of late queries. `size`: how much more a large query pays than its load. `decline`: how readily a price
declines. `crowd`: load that others may bring in the meantime. The rest only rank."""


@dataclass(frozen=True, slots=True)
class ScorePolicy:
    """One weight for each of `TERMS`."""

    weights: FloatArray
    name: str = "score"

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """One number an offer, the highest feasible one is taken; implements `BindingPolicy.score`."""
        return preference(SCORE, candidates, self.weights)


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """A policy for every application; others get `otherwise`."""

    by_application: Mapping[str, BindingPolicy]
    otherwise: BindingPolicy
    name: str = "table"

    def score(self, stream: Stream, candidates: Candidates) -> FloatArray:
        """One number an offer, the highest feasible one is taken; implements `BindingPolicy.score`."""
        return self.by_application.get(stream.application, self.otherwise).score(stream, candidates)


def load(parts: Parts) -> ScorePolicy:
    """The policy made of a checked artifact."""
    return ScorePolicy(np.asarray(check_tensors(parts, SCHEMA, {"weights": (WEIGHTS,)})["weights"], np.float64))


def load_score(card_path: Path) -> ScorePolicy:
    """The policy made of a card with its weights beside it."""
    return load(read_parts(card_path))
