"""An artifact as objects of a cluster: a ConfigMap that never changes, and the LearnedModel that points to it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tiphys_cli.model.listing import explained, models_in
from tiphys_models.api.base import API_VERSION
from tiphys_models.api.learned_artifact import CONFIG_MAP_MAX_BYTES
from tiphys_models.api.learned_model import CARD_MAX_BYTES, KIND, NAME_MAX, Stage, parse_model
from tiphys_models.artifacts.card import Card
from tiphys_models.artifacts.files import card_of, read_parts
from tiphys_models.artifacts.loaders import load
from tiphys_models.artifacts.shipped import is_carried, is_unshipped, shipped
from tiphys_models.artifacts.shipping import NO_TEST_BED
from tiphys_models.base.errors import InvalidInput
from tiphys_models.kube.client import ApiError, KubeClient

NAMESPACE = "tiphys-system"
MODEL_LABEL = "tiphys.io/learned-model"
"""The label of a model's ConfigMaps, to find old versions: `kubectl delete configmap -l tiphys.io/learned-model=NAME`."""
FIELD_MANAGER = "tiphys-cli"
_CONFLICT = 409
_METRICS = ("validation_pct_of_hashing", "mean_cost_over_rule", "held_out_loss")
_PARTS = {"app.kubernetes.io/part-of": "tiphys"}


@dataclass(frozen=True, slots=True)
class Publication:
    """The objects that publishing writes: the weights' ConfigMap and the LearnedModel."""

    config_map: Mapping[str, Any]
    model: Mapping[str, Any]
    sha256: str


def publication(card_path: Path, name: str, namespace: str, stage: Stage) -> Publication:
    """The objects for NAME.json and its NAME.safetensors, which pass every check first; `name` empty: as the card says."""
    parts = read_parts(card_path)
    found, card, weights = load(parts).card, parts.card, parts.weights
    name = name or found.name
    if len(card) > CARD_MAX_BYTES or len(card) + len(weights) > CONFIG_MAP_MAX_BYTES:
        raise InvalidInput(
            f"{card_path.name} and its weights have {len(card) + len(weights):,} bytes, a ConfigMap takes {CONFIG_MAP_MAX_BYTES:,} "
            f"({CARD_MAX_BYTES:,} of them for the card): put the files into the chart's models volume and publish spec.weights.file"
        )
    if len(name) > NAME_MAX or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
        raise InvalidInput(f"--name {name!r}: at most {NAME_MAX} lower-case letters, digits, dashes and dots, as policies give it")
    # other bytes are another object: nothing changes under a model that serves, and going back is naming the former one
    version = f"{name}-{sha256(card + weights).hexdigest()[:12]}"
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": version, "namespace": namespace, "labels": {**_PARTS, MODEL_LABEL: name}},
        "immutable": True,
        "data": {"card.json": card.decode()},
        "binaryData": {"weights.safetensors": b64encode(weights).decode()},
    }
    spec: dict[str, Any] = {
        "policy": found.policy,
        "stage": stage,
        "weights": {"configMap": {"name": version}},
        "sha256": found.sha256,
        "featureSchema": found.feature_schema,
    }
    if (evaluation := _evaluation(found)) is not None:
        spec["evaluation"] = evaluation
    metadata = {"name": name, "namespace": namespace, "labels": _PARTS}
    model = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    parse_model(model)
    return Publication(config_map, model, found.sha256)


def paper_publication(name: str, namespace: str) -> Publication:
    """The objects for weights that no image carries; the test bed must be installed, and have the very bytes of the table."""
    if is_carried(name):
        raise InvalidInput(f"every image carries the weights of {name}: nothing to ship")
    if is_unshipped(name):
        raise InvalidInput(NO_TEST_BED)
    card = card_of(name)
    made = publication(card, card.stem, namespace, "active")
    if made.sha256 != (wanted := shipped()[name].sha256):
        raise InvalidInput(f"{card} holds sha256 {made.sha256[:12]}, this release wants {wanted[:12]}: install both of one version")
    return made


async def publish(client: KubeClient, made: Publication) -> None:
    """Write both, the bytes first: extenders must not look for what is not there yet."""
    namespace = made.config_map["metadata"]["namespace"]
    try:
        await client.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=made.config_map)
    except ApiError as error:
        if error.status != _CONFLICT:  # there already: its name is the digest of what it holds
            raise
    path = f"{models_in(namespace)}/{made.model['metadata']['name']}"
    try:
        await client.apply(path, made.model, FIELD_MANAGER)
    except ApiError as error:
        raise explained(error) from error


def _evaluation(card: Card) -> dict[str, str] | None:
    """What training wrote into the card, in one line."""
    training = (card.model_extra or {}).get("training")
    if not isinstance(training, dict):
        return None
    metric = next((known for known in _METRICS if known in training), "")
    value = training.get(metric)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return {
        "metric": metric,
        "value": f"{value:.3f}",
        "source": f"training, preset {training.get('preset')}, seed {training.get('seed')}"[:253],
    }
