"""From a LearnedModel to a network that may serve: where its bytes are, and every check they must pass."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiphys_models.api.learned_model import CARD_MAX_BYTES, ConfigMapSource, LearnedModelSpec
from tiphys_models.artifacts.files import read_part
from tiphys_models.artifacts.score_network import ScoreNetwork, check_network
from tiphys_models.domain.errors import ArtifactRefused

CONFIG_MAP_MAX_BYTES = 1024 * 1024
"""What the API server takes in one ConfigMap, all values together."""


def from_config_map(spec: LearnedModelSpec, source: ConfigMapSource, obj: Mapping[str, Any], origin: str) -> ScoreNetwork:
    """The network in a ConfigMap as the API server sends it, or the reason why it must not serve."""
    weights = _value(obj, source.key, origin)
    card = spec.card.encode() if spec.card is not None else _value(obj, source.card_key, origin)
    return _checked(spec, card, weights, origin)


def from_file(spec: LearnedModelSpec, models_dir: Path | None, file: str, origin: str) -> ScoreNetwork:
    """The network in a file of the models volume. Reads up to 16 MiB: not for an event loop."""
    if models_dir is None:
        raise ArtifactRefused("Missing", f"{origin}: {file}: this process has no models volume")
    weights = read_part(models_dir / file)
    card = spec.card.encode() if spec.card is not None else read_part((models_dir / file).with_suffix(".json"))
    return _checked(spec, card, weights, origin)


def missing_config_map(source: ConfigMapSource, origin: str) -> ArtifactRefused:
    """What to say when it is not there."""
    return ArtifactRefused("Missing", f"{origin}: there is no ConfigMap {source.name} in the same namespace")


def _checked(spec: LearnedModelSpec, card: bytes, weights: bytes, origin: str) -> ScoreNetwork:
    if len(card) > CARD_MAX_BYTES:
        raise ArtifactRefused("TooLarge", f"{origin}: the card has more than {CARD_MAX_BYTES} bytes")
    network = check_network(card, weights, origin)
    if network.card.sha256 != spec.sha256:
        raise ArtifactRefused("DigestMismatch", f"{origin}: weights have sha256 {network.card.sha256}, the spec says {spec.sha256}")
    if network.card.feature_schema != spec.feature_schema:
        found = network.card.feature_schema
        raise ArtifactRefused("SchemaMismatch", f"{origin}: the card says features {found}, the spec {spec.feature_schema}")
    if network.card.policy != spec.policy:
        raise ArtifactRefused("PolicyMismatch", f"{origin}: the card is for policy {network.card.policy!r}, the spec for {spec.policy}")
    return network


def _value(obj: Mapping[str, Any], key: str, origin: str) -> bytes:
    """Of `binaryData` or of `data`."""
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
