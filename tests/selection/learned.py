"""Untrained selectors for tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.network import Network
from tiphys_models.selection.planners.registry import HEURISTICS
from tiphys_models.selection.selectors.encoding import GENERAL_NAMES
from tiphys_models.selection.selectors.surrogate import COMPONENTS, HIDDEN, Surrogate

FEATURES = len(GENERAL_NAMES)


def network(widths: Sequence[int], seed: int = 0) -> Network:
    """Random weights."""
    rng = np.random.default_rng(seed)
    return Network([(rng.normal(0, a**-0.5, (a, b)), rng.normal(0, 0.1, b)) for a, b in pairwise(widths)])


def surrogate(candidates: tuple[str, ...] = HEURISTICS, previewed: tuple[str, ...] = HEURISTICS, margin: float = 0.0) -> Surrogate:
    """Knows nothing but previews: its network gives zeros; without previews all candidates cost the same."""
    width = FEATURES + len(previewed) * COMPONENTS
    net = network((width, HIDDEN, HIDDEN, len(candidates) * 2 * COMPONENTS))
    net.layers[-1] = (np.zeros_like(net.layers[-1][0]), np.zeros_like(net.layers[-1][1]))
    return Surrogate(candidates, previewed, margin, (net,), np.zeros(width), np.ones(width), np.ones((len(candidates), COMPONENTS)))


def with_output(model: Surrogate, candidate: str, head: int, value: FloatArray) -> Surrogate:
    """A constant in `UNITS` a task added to what is predicted for one candidate; head 0 is marginal, 1 attributed."""
    at = (model.candidates.index(candidate) * 2 + head) * COMPONENTS
    model.networks[0].layers[-1][1][at : at + COMPONENTS] += value
    return model
