"""The way of a LearnedModel to what may serve: where its bytes are, and every check they must pass."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiphys_models.api.learned_model import CARD_MAX_BYTES, ConfigMapSource, LearnedModelSpec
from tiphys_models.artifacts.card import Card, read_card
from tiphys_models.artifacts.files import Parts, read_part
from tiphys_models.artifacts.loaders import Loaded, load, loader_of
from tiphys_models.base.errors import ArtifactRefused

CONFIG_MAP_MAX_BYTES = 1024 * 1024
"""What the API server takes in one ConfigMap, all values together."""


def parts_of_config_map(spec: LearnedModelSpec, source: ConfigMapSource, obj: Mapping[str, Any], origin: str) -> Parts:
    """The bytes in a ConfigMap as the API server sends it."""
    weights = _value(obj, source.key, origin)
    return Parts(spec.card.encode() if spec.card is not None else _value(obj, source.card_key, origin), weights, origin)


def parts_of_file(spec: LearnedModelSpec, models_dir: Path | None, file: str, origin: str) -> Parts:
    """The bytes in a file of the models volume. Reads up to 16 MiB: not for an event loop."""
    if models_dir is None:
        raise ArtifactRefused("Missing", f"{origin}: {file}: this process has no models volume")
    weights = read_part(models_dir / file)
    card = spec.card.encode() if spec.card is not None else read_part((models_dir / file).with_suffix(".json"))
    return Parts(card, weights, origin)


def missing_config_map(source: ConfigMapSource, origin: str) -> ArtifactRefused:
    """What to say when it is not there."""
    return ArtifactRefused("Missing", f"{origin}: there is no ConfigMap {source.name} in the same namespace")


def checked(spec: LearnedModelSpec, parts: Parts) -> Loaded:
    """What was published, if it is what the spec says and may serve; ArtifactRefused says why not."""
    origin = parts.origin
    if len(parts.card) > CARD_MAX_BYTES:  # before anything is parsed
        raise ArtifactRefused("TooLarge", f"{origin}: the card has more than {CARD_MAX_BYTES} bytes")
    if loader_of(spec.policy) is None:
        raise ArtifactRefused("UnknownPolicy", f"{origin}: nothing that is called {spec.policy!r} decides with weights")
    card = read_card(parts, Card)
    if card.policy != spec.policy:
        raise ArtifactRefused("PolicyMismatch", f"{origin}: the card is for policy {card.policy!r}, the spec for {spec.policy}")
    loaded = load(parts)
    if card.sha256 != spec.sha256:
        raise ArtifactRefused("DigestMismatch", f"{origin}: weights have sha256 {card.sha256}, the spec says {spec.sha256}")
    if card.feature_schema != spec.feature_schema:
        raise ArtifactRefused("SchemaMismatch", f"{origin}: the card says features {card.feature_schema}, the spec {spec.feature_schema}")
    return loaded


def _value(obj: Mapping[str, Any], key: str, origin: str) -> bytes:
    """One key of `binaryData` or of `data`."""
    encoded, text = (obj.get("binaryData") or {}).get(key), (obj.get("data") or {}).get(key)
    if encoded is None and text is None:
        raise ArtifactRefused("Missing", f"{origin}: the ConfigMap has no key {key}")
    try:
        found = b64decode(encoded, validate=True) if encoded is not None else str(text).encode()
    except (binascii.Error, TypeError, ValueError) as error:
        raise ArtifactRefused("WeightsUnreadable", f"{origin}: key {key} is not base64") from error
    if len(found) > CONFIG_MAP_MAX_BYTES:
        raise ArtifactRefused("TooLarge", f"{origin}: key {key} has more than {CONFIG_MAP_MAX_BYTES} bytes")
    return found
