"""The paper's agent: Q of seven policies from eight windows of per-offer averages, by convolutions over time. Served by numpy.

Offers stand in the order of their names and fill the first places of a fixed number; where they do not fit, the agent cannot serve.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.artifacts.tensors import check_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.streams.agent import BINS
from tiphys_models.streams.offers import Offers
from tiphys_models.streams.rules import PAPER

SCHEMA = "binding-paper/1"
PLACES = 96
"""The paper's number is not known; full-edge has 88 offers here."""
HISTORY = 8
WIDTH = 3 * PLACES + BINS
CHANNELS, KERNEL, DENSE = 64, 3, 128
SHAPES: Mapping[str, tuple[int, ...]] = {
    "conv.0.weight": (CHANNELS, WIDTH, KERNEL), "conv.0.bias": (CHANNELS,),
    "conv.1.weight": (CHANNELS, CHANNELS, KERNEL), "conv.1.bias": (CHANNELS,),
    "dense.0.weight": (DENSE, CHANNELS * (HISTORY - 2 * KERNEL + 2)), "dense.0.bias": (DENSE,),
    "dense.1.weight": (len(PAPER), DENSE), "dense.1.bias": (len(PAPER),),
}  # fmt: skip
"""Shapes of the network's arrays, in torch's layout."""


def window_features(
    offers: Offers, streams: FloatArray, responses_qps: FloatArray, load_qps: FloatArray, incoming: FloatArray
) -> FloatArray:
    """Averages of one window: streams served, responses a second and load of every offer, over its capacity; queries that came, by bin."""
    count, capacity = len(offers), offers.columns.capacity_qps
    if count > PLACES:
        raise InvalidInput(f"aset-paper was made for {PLACES} offers at most, there are {count}")
    found = np.zeros(WIDTH)
    for place, column in enumerate((10.0 * streams, responses_qps, load_qps)):
        found[place * PLACES : place * PLACES + count] = column / capacity
    found[3 * PLACES :] = 10.0 * incoming / capacity.sum()
    return found


@dataclass(slots=True)
class WindowHistory:
    """The last HISTORY windows, zeros before the first."""

    windows: deque[FloatArray] = field(default_factory=lambda: deque([np.zeros(WIDTH)] * HISTORY, maxlen=HISTORY))

    def push(self, features: FloatArray) -> FloatArray:
        """[WIDTH, HISTORY] with the newest last."""
        self.windows.append(features)
        return np.array(self.windows).T


@dataclass(frozen=True, slots=True)
class PaperAgent:
    """Deterministic; the history is the caller's."""

    arrays: Mapping[str, FloatArray]

    def values(self, history: FloatArray) -> FloatArray:
        """Q of every policy."""
        a = self.arrays
        rows = history
        for layer in ("conv.0", "conv.1"):
            weight = a[f"{layer}.weight"]
            steps = rows.shape[1] - KERNEL + 1
            windows = np.stack([rows[:, t : t + KERNEL].ravel() for t in range(steps)], axis=1)
            rows = np.maximum(weight.reshape(len(weight), -1) @ windows + a[f"{layer}.bias"][:, None], 0.0)
        hidden = np.maximum(a["dense.0.weight"] @ rows.ravel() + a["dense.0.bias"], 0.0)
        return np.asarray(a["dense.1.weight"] @ hidden + a["dense.1.bias"])

    def choose(self, history: FloatArray) -> int:
        """The chosen policy, by its index in PAPER."""
        return int(np.argmax(self.values(history)))


def load(parts: Parts) -> PaperAgent:
    """The agent made of a checked artifact."""
    return PaperAgent(check_tensors(parts, SCHEMA, SHAPES).arrays)


def load_paper(card_path: Path) -> PaperAgent:
    """The agent made of a card with its weights beside it."""
    return load(read_parts(card_path))
