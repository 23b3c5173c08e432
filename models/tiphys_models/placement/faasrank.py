"""FaaSRank: one small network scores every node by itself (Yu et al., ACSOS 2021). Inference only, without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.artifacts.files import Parts
from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.encoder import ENCODERS, known_encoded
from tiphys_models.placement.outlook import SCHEMA_OUTLOOK
from tiphys_models.placement.schema import SCHEMA
from tiphys_models.placement.score_network import ScoreNetwork, check_network


@dataclass(frozen=True, slots=True)
class FaaSRank:
    """Scores any number of nodes with one network; a node without any reading gets NaN, not a score made of means."""

    network: ScoreNetwork
    name: str = "faasrank"

    @property
    def row_wise(self) -> bool:
        """Only with the paper's inputs: the others look at the clock and at all candidates."""
        return self.network.card.feature_schema == SCHEMA

    @property
    def reads_profiles(self) -> bool:
        """Whether it is worth nothing where no runtime reports what calls are like."""
        return self.network.card.feature_schema == SCHEMA_OUTLOOK

    @property
    def epsilon(self) -> float:
        """Differences of score below this (from the model's card) are noise of the readings."""
        return self.network.card.epsilon

    @property
    def digest(self) -> str:
        """sha256 of the weights."""
        return self.network.card.sha256

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Scores of the candidates: the network's output for each."""
        if not len(view.rows):
            return np.zeros(0)  # some inputs are means over candidates
        return self.score_inputs(self.inputs(view))

    def inputs(self, view: CandidateView) -> FloatArray:
        """What the network reads: a row a candidate, in the order that the card's schema names; missing is NaN."""
        return ENCODERS[self.network.card.feature_schema][1](view)

    def score_inputs(self, encoded: FloatArray) -> FloatArray:
        """The network's output for inputs, which stay as they are."""
        known = known_encoded(encoded)
        scores = self.network(encoded)
        return scores if known.all() else np.where(known, scores, np.nan)


def load(parts: Parts) -> FaaSRank:
    """The policy made of a checked artifact."""
    return FaaSRank(check_network(parts))
