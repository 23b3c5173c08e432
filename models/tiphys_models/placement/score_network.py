"""A score network as it serves: arrays and a forward pass, from a checked artifact.
Refusals: `artifacts/tensors.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field
from safetensors.numpy import save as save_tensors

from tiphys_models.artifacts.card import Card, Finite, read_card
from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.artifacts.forward import score_rows
from tiphys_models.artifacts.tensors import check_digest, check_numbers, unpack
from tiphys_models.artifacts.work import SCORING, check_work
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.outlook import SCHEMA_OUTLOOK, WIDTH
from tiphys_models.placement.schema import FEATURES, SCHEMA

_LAYERS = 3
INPUTS = {SCHEMA: len(FEATURES), SCHEMA_OUTLOOK: WIDTH}
"""How many inputs each version of the encoder gives."""


class ModelCard(Card):
    """What the card of a score network says besides."""

    scrape_windows_s: list[int] = Field(min_length=1, description="Rate windows the weights were trained and tested for.")
    mean: list[Finite] = Field(description="Per feature, on the training split; a missing input is replaced by it.")
    scale: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(description="Standard deviation per feature.")
    clip: float = Field(default=5.0, gt=0, description="Bound of a normalised input.")
    epsilon: float = Field(default=1e-3, gt=0, description="Scores closer than this are equal.")


@dataclass(frozen=True, slots=True)
class ScoreNetwork:
    """Inputs -> tanh -> tanh -> 1 score, whatever its hidden widths; applied to each node by itself."""

    card: ModelCard
    weights: tuple[tuple[FloatArray, FloatArray], ...]
    mean: FloatArray
    scale: FloatArray

    def __call__(self, encoded: FloatArray) -> FloatArray:
        """float32[..., inputs] -> float64[...]; a missing input counts as the trained mean."""
        (w0, b0), (w1, b1), (w2, b2) = self.weights
        rows = encoded.reshape(-1, encoded.shape[-1])
        return score_rows(rows, self.mean, self.scale, self.card.clip, w0, b0, w1, b1, w2, b2).reshape(encoded.shape[:-1])

    @property
    def parameters(self) -> int:
        """How many trained numbers it has."""
        return sum(weight.size + bias.size for weight, bias in self.weights)


def load_network(card_path: Path) -> ScoreNetwork:
    """Read `NAME.json` and `NAME.safetensors` and check both; ArtifactRefused names what is wrong."""
    return check_network(read_parts(card_path))


def check_network(parts: Parts) -> ScoreNetwork:
    """The network of these bytes, or the reason why it must not serve."""
    card, origin = read_card(parts, ModelCard), parts.origin
    check_digest(card, parts)
    width = INPUTS.get(card.feature_schema)
    if width is None:
        encoded = " and ".join(INPUTS)
        raise ArtifactRefused("SchemaMismatch", f"{origin}: made for features {card.feature_schema}, this release encodes {encoded}")
    if len(card.mean) != width or len(card.scale) != width:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: mean and scale must have {width} numbers each")
    return ScoreNetwork(card, _layers(parts, width), np.array(card.mean, np.float32), np.array(card.scale, np.float32))


def pack_weights(layers: tuple[tuple[FloatArray, FloatArray], ...]) -> bytes:
    """The safetensors file of these layers, each (weight[in, out], bias[out])."""
    tensors = {}
    for index, (weight, bias) in enumerate(layers):
        tensors[f"actor.{index}.weight"] = np.ascontiguousarray(weight, np.float32)
        tensors[f"actor.{index}.bias"] = np.ascontiguousarray(bias, np.float32)
    return bytes(save_tensors(tensors))


def _layers(parts: Parts, inputs: int) -> tuple[tuple[FloatArray, FloatArray], ...]:
    origin, tensors = parts.origin, unpack(parts)
    expected = {f"actor.{i}.{part}" for i in range(_LAYERS) for part in ("weight", "bias")}
    if set(tensors) != expected:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: tensors must be {', '.join(sorted(expected))}")
    for name, array in tensors.items():
        check_numbers(name, array, origin)
    layers = tuple((tensors[f"actor.{i}.weight"], tensors[f"actor.{i}.bias"]) for i in range(_LAYERS))
    width = inputs
    for weight, bias in layers:
        if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
            raise ArtifactRefused("ShapeMismatch", f"{origin}: layers do not fit each other or the {inputs} inputs")
        width = weight.shape[1]
    if width != 1:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: the last layer must give one score")
    check_work((inputs, *(weight.shape[1] for weight, _ in layers)), SCORING, origin)
    return layers
