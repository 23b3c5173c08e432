"""Weights of planners (and of anything that is not a score network): named arrays of expected shapes, with a card, checked before use.

Refusals have the fixed reasons of `score_network`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tiphys_models.artifacts.files import read_part
from tiphys_models.domain.errors import ArtifactRefused
from tiphys_models.features.arrays import FloatArray

Shapes = Mapping[str, tuple[int, ...]]


class TensorCard(BaseModel):
    """`NAME.json` beside `NAME.safetensors`."""

    model_config = ConfigDict(extra="allow", frozen=True)  # training adds its own evidence

    name: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    policy: str = Field(description="Registry name of the planner or selector these weights are for.")
    feature_schema: str = Field(description="Version of the inputs, as in the module that encodes them.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Digest of the weights file.")


@dataclass(frozen=True, slots=True)
class Tensors:
    """What was loaded."""

    card: TensorCard
    arrays: dict[str, FloatArray]

    def __getitem__(self, name: str) -> FloatArray:
        return self.arrays[name]


def load_checked(card_path: Path, feature_schema: str, shapes: Shapes) -> Tensors:
    """Read `NAME.json` and `NAME.safetensors`; ArtifactRefused names what is wrong."""
    if card_path.suffix != ".json":
        raise ArtifactRefused("ForbiddenFormat", f"{card_path.name}: a model is named by its card, NAME.json")
    return check_tensors(read_part(card_path), read_part(card_path.with_suffix(".safetensors")), card_path.name, feature_schema, shapes)


def check_tensors(card_json: bytes, weights: bytes, origin: str, feature_schema: str, shapes: Shapes) -> Tensors:
    """The arrays of these bytes, or the reason why they must not serve."""
    try:
        card = TensorCard.model_validate_json(card_json)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise ArtifactRefused("CardInvalid", f"{origin}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
    if (found := sha256(weights).hexdigest()) != card.sha256:
        raise ArtifactRefused("DigestMismatch", f"{origin}: weights have sha256 {found}, the card says {card.sha256}")
    if card.feature_schema != feature_schema:
        raise ArtifactRefused("SchemaMismatch", f"{origin}: made for inputs {card.feature_schema}, this release gives {feature_schema}")
    try:
        arrays = load_tensors(weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ArtifactRefused("WeightsUnreadable", f"{origin}: {error}") from error
    if {name: array.shape for name, array in arrays.items()} != dict(shapes):
        raise ArtifactRefused("ShapeMismatch", f"{origin}: arrays must be {', '.join(f'{n}{list(s)}' for n, s in shapes.items())}")
    for name, array in arrays.items():
        if array.dtype != np.float32:
            raise ArtifactRefused("ShapeMismatch", f"{origin}: {name} must be float32")
        if not np.isfinite(array).all():
            raise ArtifactRefused("NotFinite", f"{origin}: {name} has a NaN or infinite weight")
    return Tensors(card, arrays)


def write_tensors(
    directory: Path, name: str, policy: str, feature_schema: str, arrays: Mapping[str, FloatArray], **evidence: Any
) -> Tensors:
    """Write both files and read them back as a service would."""
    weights = bytes(save_tensors({key: np.ascontiguousarray(array, np.float32) for key, array in arrays.items()}))
    card = TensorCard(name=name, policy=policy, feature_schema=feature_schema, sha256=sha256(weights).hexdigest(), **evidence)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.safetensors").write_bytes(weights)
    path = directory / f"{name}.json"
    path.write_bytes(card.model_dump_json(indent=2).encode() + b"\n")
    return load_checked(path, feature_schema, {key: array.shape for key, array in arrays.items()})
