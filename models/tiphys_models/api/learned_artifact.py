"""From a LearnedModel to what may serve: where its bytes are, and every check they must pass."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_models.api.learned_model import CARD_MAX_BYTES, ConfigMapSource, LearnedModelSpec
from tiphys_models.artifacts.files import read_part
from tiphys_models.artifacts.score_network import ScoreNetwork, check_network
from tiphys_models.domain.errors import ArtifactRefused

CONFIG_MAP_MAX_BYTES = 1024 * 1024
"""What the API server takes in one ConfigMap, all values together."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A card and its weights, unchecked."""

    card: bytes
    weights: bytes


def parts_of_config_map(spec: LearnedModelSpec, source: ConfigMapSource, obj: Mapping[str, Any], origin: str) -> Parts:
    """The bytes in a ConfigMap as the API server sends it."""
    weights = _value(obj, source.key, origin)
    return Parts(spec.card.encode() if spec.card is not None else _value(obj, source.card_key, origin), weights)


def parts_of_file(spec: LearnedModelSpec, models_dir: Path | None, file: str, origin: str) -> Parts:
    """The bytes in a file of the models volume. Reads up to 16 MiB: not for an event loop."""
    if models_dir is None:
        raise ArtifactRefused("Missing", f"{origin}: {file}: this process has no models volume")
    weights = read_part(models_dir / file)
    return Parts(spec.card.encode() if spec.card is not None else read_part((models_dir / file).with_suffix(".json")), weights)


def from_config_map(spec: LearnedModelSpec, source: ConfigMapSource, obj: Mapping[str, Any], origin: str) -> ScoreNetwork:
    """The network in a ConfigMap, or the reason why it must not serve."""
    return checked_network(spec, parts_of_config_map(spec, source, obj, origin), origin)


def from_file(spec: LearnedModelSpec, models_dir: Path | None, file: str, origin: str) -> ScoreNetwork:
    """The network in a file of the models volume."""
    return checked_network(spec, parts_of_file(spec, models_dir, file, origin), origin)


def missing_config_map(source: ConfigMapSource, origin: str) -> ArtifactRefused:
    """What to say when it is not there."""
    return ArtifactRefused("Missing", f"{origin}: there is no ConfigMap {source.name} in the same namespace")


def checked_network(spec: LearnedModelSpec, parts: Parts, origin: str) -> ScoreNetwork:
    """A placement policy's network."""
    check_card_size(parts, origin)
    network = check_network(parts.card, parts.weights, origin)
    card = network.card
    check_promised(spec, card.policy, card.sha256, card.feature_schema, origin)
    return network


def check_card_size(parts: Parts, origin: str) -> None:
    """Before anything is parsed."""
    if len(parts.card) > CARD_MAX_BYTES:
        raise ArtifactRefused("TooLarge", f"{origin}: the card has more than {CARD_MAX_BYTES} bytes")


def check_promised(spec: LearnedModelSpec, policy: str, sha256: str, feature_schema: str, origin: str) -> None:
    """What was found is what the spec says."""
    if sha256 != spec.sha256:
        raise ArtifactRefused("DigestMismatch", f"{origin}: weights have sha256 {sha256}, the spec says {spec.sha256}")
    if feature_schema != spec.feature_schema:
        raise ArtifactRefused("SchemaMismatch", f"{origin}: the card says features {feature_schema}, the spec {spec.feature_schema}")
    if policy != spec.policy:
        raise ArtifactRefused("PolicyMismatch", f"{origin}: the card is for policy {policy!r}, the spec for {spec.policy}")


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
