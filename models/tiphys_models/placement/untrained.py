"""A score network with random weights: for tests and for benchmarks that measure speed. It decides nothing sensible."""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np

from tiphys_models.placement.schema import FEATURES, SCHEMA
from tiphys_models.placement.score_network import ModelCard, ScoreNetwork, load_network, pack_weights

_WIDTHS = (len(FEATURES), 32, 16, 1)


def write_untrained(directory: Path, name: str, rng: np.random.Generator) -> ScoreNetwork:
    """Write NAME.json and NAME.safetensors and load them as any artifact is loaded."""
    layers = tuple(
        (rng.normal(0, 1 / np.sqrt(a), (a, b)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32)) for a, b in pairwise(_WIDTHS)
    )
    weights = pack_weights(layers)
    card = ModelCard(
        name=name,
        policy="faasrank",
        feature_schema=SCHEMA,
        sha256=sha256(weights).hexdigest(),
        scrape_windows_s=[5],
        mean=[0.0] * len(FEATURES),
        scale=[1.0 if f.unit not in ("bytes", "bytes/s") else 2.0**30 for f in FEATURES],
    )
    (directory / f"{name}.safetensors").write_bytes(weights)
    path = directory / f"{name}.json"
    path.write_bytes(card.as_json())
    return load_network(path)
