"""Weights as named arrays of expected shapes, with a card; checked before use, never unpickled.

Refusals have fixed reasons: Missing, ForbiddenFormat, TooLarge, CardInvalid, DigestMismatch, WeightsUnreadable, SchemaMismatch,
ShapeMismatch, TooMuchWork, NotFinite, UnknownPolicy, PolicyMismatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts, read_parts
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Tensors:
    """A card and its arrays, checked."""

    card: Card
    arrays: dict[str, FloatArray]

    def __getitem__(self, name: str) -> FloatArray:
        return self.arrays[name]


def load_checked(card_path: Path, feature_schema: str, shapes: Shapes) -> Tensors:
    """Read `NAME.json` and `NAME.safetensors`; ArtifactRefused names what is wrong."""
    return check_tensors(read_parts(card_path), feature_schema, shapes)


def check_tensors(parts: Parts, feature_schema: str, shapes: Shapes) -> Tensors:
    """The arrays of these bytes, or the reason why they must not serve."""
    card, origin = read_card(parts, Card), parts.origin
    check_digest(card, parts)
    if card.feature_schema != feature_schema:
        raise ArtifactRefused("SchemaMismatch", f"{origin}: made for inputs {card.feature_schema}, this release gives {feature_schema}")
    arrays = unpack(parts)
    if {name: array.shape for name, array in arrays.items()} != dict(shapes):
        raise ArtifactRefused("ShapeMismatch", f"{origin}: arrays must be {', '.join(f'{n}{list(s)}' for n, s in shapes.items())}")
    for name, array in arrays.items():
        check_numbers(name, array, origin)
    return Tensors(card, arrays)


def check_digest(card: Card, parts: Parts) -> None:
    """Bytes other than those the card was written for are refused before anything reads them."""
    if (found := sha256(parts.weights).hexdigest()) != card.sha256:
        raise ArtifactRefused("DigestMismatch", f"{parts.origin}: weights have sha256 {found}, the card says {card.sha256}")


def unpack(parts: Parts) -> dict[str, FloatArray]:
    """All arrays of a safetensors file, of whatever shape."""
    try:
        return dict(load_tensors(parts.weights))
    except (SafetensorError, ValueError, KeyError) as error:
        raise ArtifactRefused("WeightsUnreadable", f"{parts.origin}: {error}") from error


def check_numbers(name: str, array: FloatArray, origin: str) -> None:
    """Every weight is a finite float32."""
    if array.dtype != np.float32:
        raise ArtifactRefused("ShapeMismatch", f"{origin}: {name} must be float32")
    if not np.isfinite(array).all():
        raise ArtifactRefused("NotFinite", f"{origin}: {name} has a NaN or infinite weight")


def write_tensors(
    directory: Path, name: str, policy: str, feature_schema: str, arrays: Mapping[str, FloatArray], **evidence: Any
) -> Tensors:
    """Write both files and read them back as a service would."""
    stored = {key: np.ascontiguousarray(array, np.float32) for key, array in arrays.items()}
    weights = bytes(save_tensors(stored))
    shapes = {key: array.shape for key, array in stored.items()}
    digest = sha256(weights).hexdigest()
    card = Card(name=name, policy=policy, feature_schema=feature_schema, sha256=digest, tensors=shapes, **evidence)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.safetensors").write_bytes(weights)
    path = directory / f"{name}.json"
    path.write_bytes(card.as_json())
    return load_checked(path, feature_schema, {key: array.shape for key, array in arrays.items()})
