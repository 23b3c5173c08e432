"""LearnedModels with their ConfigMaps, as `tiphys model publish` writes them, and ways to break them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from tiphys_cli.model.publishing import publication
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.network import Network
from tiphys_models.placement.untrained import write_untrained
from tiphys_models.scaling.learned import moves_of
from tiphys_models.scaling.settings import RULE

Object = dict[str, Any]
OWN = "tiphys-system"


def published(directory: Path, name: str = "m", seed: int = 0, stage: Any = "active") -> tuple[Object, Object]:
    """ConfigMap and LearnedModel of random weights."""
    write_untrained(directory, "card", np.random.default_rng(seed))
    made = publication(directory / "card.json", name, OWN, stage)
    config_map, model = deepcopy(dict(made.config_map)), deepcopy(dict(made.model))
    model["metadata"] |= {"uid": f"uid-{name}", "generation": 1}
    return config_map, model


def write_agent(directory: Path, action: int, **card: Any) -> Path:
    """Artifact of a `combined` agent that finds one action best, whatever it sees; its card."""
    moves, width = moves_of("combined", asdict(RULE)), len(moves_of("combined").actions)
    arrays = Network([(np.zeros((moves.width, width)), np.eye(width)[action])]).arrays()
    said = {"hidden": (), "dueling": False, "rule": {k: float(v) for k, v in asdict(RULE).items()}, "price": 12.0} | card
    write_tensors(directory, "agent", "combined", moves.schema, arrays, **said)
    return directory / "agent.json"


def published_agent(directory: Path, name: str = "m", stage: Any = "active", action: int = 3, **card: Any) -> tuple[Object, Object]:
    """The same of such an agent."""
    made = publication(write_agent(directory, action, **card), name, OWN, stage)
    config_map, model = deepcopy(dict(made.config_map)), deepcopy(dict(made.model))
    model["metadata"] |= {"uid": f"uid-{name}", "generation": 1}
    return config_map, model


def change_card(config_map: Object, **changes: Any) -> None:
    config_map["data"]["card.json"] = json.dumps(json.loads(config_map["data"]["card.json"]) | changes)


def change_weights(config_map: Object, model: Object, change: Callable[[dict[str, Any]], None]) -> None:
    """Other weights with card and spec that fit them, whatever is wrong inside."""
    tensors = load(b64decode(config_map["binaryData"]["weights.safetensors"]))
    change(tensors)
    set_weights(config_map, model, save(tensors))


def set_weights(config_map: Object, model: Object, weights: bytes) -> None:
    config_map["binaryData"]["weights.safetensors"] = b64encode(weights).decode()
    change_card(config_map, sha256=sha256(weights).hexdigest())
    model["spec"]["sha256"] = sha256(weights).hexdigest()


def _nan(tensors: dict[str, Any]) -> None:
    tensors["actor.1.weight"][0, 0] = np.nan


def _narrow(tensors: dict[str, Any]) -> None:
    tensors["actor.0.weight"] = tensors["actor.0.weight"][:20].copy()


BROKEN: dict[str, tuple[Callable[[Object, Object], Any], str]] = {
    "another digest in the spec": (lambda c, m: m["spec"].update(sha256="0" * 64), "DigestMismatch"),
    "another digest in the card": (lambda c, m: change_card(c, sha256="0" * 64), "DigestMismatch"),
    "no weights": (lambda c, m: c["binaryData"].clear(), "Missing"),
    "no card": (lambda c, m: c["data"].clear(), "Missing"),
    "not base64": (lambda c, m: c["binaryData"].update({"weights.safetensors": "§"}), "WeightsUnreadable"),
    "a pickle": (lambda c, m: set_weights(c, m, b"\x80\x04cos\nsystem\n."), "WeightsUnreadable"),
    "card of nothing": (lambda c, m: c["data"].update({"card.json": "{}"}), "CardInvalid"),
    "card too long": (lambda c, m: change_card(c, notes="x" * 70_000), "TooLarge"),
    "weights too long": (lambda c, m: set_weights(c, m, b"\0" * (2**20 + 1)), "TooLarge"),
    "other features in the spec": (lambda c, m: m["spec"].update(featureSchema="faasrank-42/1"), "SchemaMismatch"),
    "features nobody encodes": (lambda c, m: change_card(c, feature_schema="faasrank-25/9"), "SchemaMismatch"),
    "another policy in the card": (lambda c, m: change_card(c, policy="greedy"), "PolicyMismatch"),
    "nan weight": (lambda c, m: change_weights(c, m, _nan), "NotFinite"),
    "wrong shape": (lambda c, m: change_weights(c, m, _narrow), "ShapeMismatch"),
}
