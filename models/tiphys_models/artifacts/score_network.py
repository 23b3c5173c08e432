"""A score network as it serves: arrays and a forward pass, from a checked artifact.

Refusals have fixed reasons: Missing, ForbiddenFormat, TooLarge, CardInvalid, DigestMismatch, WeightsUnreadable, SchemaMismatch,
ShapeMismatch, TooMuchWork, NotFinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tiphys_models.artifacts.card import ModelCard
from tiphys_models.artifacts.files import read_part
from tiphys_models.artifacts.forward import score_rows
from tiphys_models.artifacts.work import SCORING, check_work
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray
from tiphys_models.features.outlook import SCHEMA_OUTLOOK, WIDTH
from tiphys_models.features.schema import FEATURES, SCHEMA

_LAYERS = 3
INPUTS = {SCHEMA: len(FEATURES), SCHEMA_OUTLOOK: WIDTH}
"""How many inputs each version of the encoder gives."""


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
    if card_path.suffix != ".json":
        raise ArtifactRefused("ForbiddenFormat", f"{card_path.name}: a model is named by its card, NAME.json")
    weights_path = card_path.with_suffix(".safetensors")
    return check_network(read_part(card_path), read_part(weights_path), card_path.name)


def check_network(card_json: bytes, weights: bytes, origin: str) -> ScoreNetwork:
    """The network of these bytes, or the reason why it must not serve."""
    try:
        card = ModelCard.model_validate_json(card_json)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ArtifactRefused("CardInvalid", f"{origin}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    if (found := sha256(weights).hexdigest()) != card.sha256:
        raise ArtifactRefused("DigestMismatch", f"{origin}: weights have sha256 {found}, the card says {card.sha256}")
    width = INPUTS.get(card.feature_schema)
    if width is None:
        encoded = " and ".join(INPUTS)
        raise ArtifactRefused("SchemaMismatch", f"{origin}: made for features {card.feature_schema}, this release encodes {encoded}")
    if len(card.mean) != width or len(card.scale) != width:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: mean and scale must have {width} numbers each")
    layers = _layers(weights, origin, width)
    return ScoreNetwork(card, layers, np.array(card.mean, np.float32), np.array(card.scale, np.float32))


def pack_weights(layers: tuple[tuple[FloatArray, FloatArray], ...]) -> bytes:
    """The safetensors file of these layers, each (weight[in, out], bias[out])."""
    tensors = {}
    for index, (weight, bias) in enumerate(layers):
        tensors[f"actor.{index}.weight"] = np.ascontiguousarray(weight, np.float32)
        tensors[f"actor.{index}.bias"] = np.ascontiguousarray(bias, np.float32)
    return bytes(save_tensors(tensors))


def _layers(weights: bytes, origin: str, inputs: int) -> tuple[tuple[FloatArray, FloatArray], ...]:
    try:
        tensors = load_tensors(weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ArtifactRefused("WeightsUnreadable", f"{origin}: {error}") from error
    expected = {f"actor.{i}.{part}" for i in range(_LAYERS) for part in ("weight", "bias")}
    if set(tensors) != expected:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: tensors must be {', '.join(sorted(expected))}")
    layers = tuple((tensors[f"actor.{i}.weight"], tensors[f"actor.{i}.bias"]) for i in range(_LAYERS))
    width = inputs
    for weight, bias in layers:
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ArtifactRefused("ShapeMismatch", f"{origin}: weights must be float32")
        if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
            raise ArtifactRefused("ShapeMismatch", f"{origin}: layers do not fit each other or the {inputs} inputs")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ArtifactRefused("NotFinite", f"{origin}: a weight is NaN or infinite")
        width = weight.shape[1]
    if width != 1:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: the last layer must give one score")
    check_work((inputs, *(weight.shape[1] for weight, _ in layers)), SCORING, origin)
    return layers
