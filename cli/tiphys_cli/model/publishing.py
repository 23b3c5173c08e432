"""An artifact as objects of a cluster: a ConfigMap that never changes, and the LearnedModel that points to it."""

from __future__ import annotations

import contextlib
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tiphys_models.api.learned_artifact import CONFIG_MAP_MAX_BYTES
from tiphys_models.api.learned_model import CARD_MAX_BYTES, KIND, MODELS_PATH, NAME_MAX, SCALING_AGENTS, Stage, parse_model
from tiphys_models.api.scheduling_policy import API_VERSION
from tiphys_models.artifacts.card import ModelCard
from tiphys_models.artifacts.files import read_part
from tiphys_models.artifacts.score_network import load_network
from tiphys_models.artifacts.tensors import TensorCard
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.domain.errors import InvalidInput
from tiphys_models.scaling.learned import load_agent

NAMESPACE = "tiphys-system"
MODEL_LABEL = "tiphys.io/learned-model"
"""On the ConfigMaps of a model, so that old versions can be found: `kubectl delete configmap -l tiphys.io/learned-model=NAME`."""
FIELD_MANAGER = "tiphys-cli"
_CONFLICT, _NOT_FOUND = 409, 404
_METRICS = ("validation_pct_of_hashing", "mean_cost_over_rule")
_PARTS = {"app.kubernetes.io/part-of": "tiphys"}


@dataclass(frozen=True, slots=True)
class Publication:
    """What is written."""

    config_map: Mapping[str, Any]
    model: Mapping[str, Any]
    sha256: str


def publication(card_path: Path, name: str, namespace: str, stage: Stage) -> Publication:
    """The objects for NAME.json and its NAME.safetensors, which pass every check first; `name` empty: as the card says."""
    found = _checked(card_path)
    card, weights = read_part(card_path), read_part(card_path.with_suffix(".safetensors"))
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


def _checked(card_path: Path) -> ModelCard | TensorCard:
    """Of an artifact that passes what its kind is checked for before it serves."""
    with contextlib.suppress(ValidationError):
        card = TensorCard.model_validate_json(read_part(card_path))
        if card.policy in SCALING_AGENTS:
            load_agent(card_path)
            return card
    return load_network(card_path).card


async def publish(client: KubeClient, made: Publication) -> None:
    """Write both, the bytes first: extenders must not look for what is not there yet."""
    namespace = made.config_map["metadata"]["namespace"]
    try:
        await client.request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=made.config_map)
    except ApiError as error:
        if error.status != _CONFLICT:  # there already: its name is the digest of what it holds
            raise
    path = f"{_in(namespace)}/{made.model['metadata']['name']}"
    try:
        await client.apply(path, made.model, FIELD_MANAGER)
    except ApiError as error:
        raise _explained(error) from error


async def listed(client: KubeClient, namespace: str) -> list[dict[str, Any]]:
    """One row a LearnedModel, as `tiphys model list --json` prints it."""
    try:
        found = await client.get(_in(namespace))
    except ApiError as error:
        raise _explained(error) from error
    return [_row(obj) for obj in found.get("items") or ()]


def _in(namespace: str) -> str:
    head, _, plural = MODELS_PATH.rpartition("/")
    return f"{head}/namespaces/{namespace}/{plural}"


def _explained(error: ApiError) -> Exception:
    if error.status == _NOT_FOUND:
        return InvalidInput("this cluster does not know the kind LearnedModel: upgrade the chart, or apply manifests/crds")
    return error


def _row(obj: Mapping[str, Any]) -> dict[str, Any]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    accepted, loaded = conditions.get("Accepted") or {}, conditions.get("Loaded") or {}
    return {
        "name": obj["metadata"]["name"],
        "policy": spec.get("policy", ""),
        "stage": spec.get("stage", ""),
        "accepted": accepted.get("status", "Unknown"),
        "loaded": loaded.get("status", "Unknown"),
        "reason": (loaded if accepted.get("status") == "True" else accepted).get("reason", "no status: is the operator running?"),
        "sha256": spec.get("sha256", ""),
        "servedDigest": status.get("servedDigest", ""),
        "evaluation": (spec.get("evaluation") or {}).get("value", ""),
    }


def _evaluation(card: ModelCard | TensorCard) -> dict[str, str] | None:
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
