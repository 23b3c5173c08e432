"""pydantic's schemas as structural ones (apiextensions.k8s.io/v1), which know neither `$ref` nor "or null" nor `propertyNames`.

References are put in place, optional fields are simply not required, and what remains is said in CEL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from tiphys_models.api.base import CelRule

# What pydantic writes and the API server takes as it is. Everything else is translated below or an error.
_KEPT = frozenset(
    {
        "type",
        "description",
        "enum",
        "default",
        "format",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "required",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
    }
)


def cel(rules: Sequence[CelRule]) -> list[dict[str, str]]:
    """Rules in the form of `x-kubernetes-validations` in a schema."""
    return [{"rule": rule.cel, "message": rule.message} for rule in rules]


def structural(model: type[BaseModel], *, defaults: bool) -> dict[str, Any]:
    """Schema of a model; anything without a translation is an error."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), defaults, model.__name__)


def _convert(node: dict[str, Any], defs: Mapping[str, Any], defaults: bool, where: str) -> dict[str, Any]:
    """One schema node: references in place, only words that a structural schema knows."""
    if "$ref" in node:
        target = defs[node["$ref"].rsplit("/", 1)[-1]]
        node = {**target, **{k: v for k, v in node.items() if k != "$ref"}}
    if "anyOf" in node:
        options = [option for option in node["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise ValueError(f"{where}: a structural schema cannot offer a choice of types")
        rest = {k: v for k, v in node.items() if k not in ("anyOf", "default")}
        return _convert({**options[0], **rest}, defs, defaults, where)
    if "patternProperties" in node:  # pydantic's way of saying what keys look like; LABEL_KEYS_RULE says it in CEL
        (values,) = node["patternProperties"].values()
        node = {**{k: v for k, v in node.items() if k != "patternProperties"}, "additionalProperties": values}
    out = {k: deepcopy(v) for k, v in node.items() if k in _KEPT and (defaults or k != "default")}  # shared lists become YAML anchors
    unknown = set(node) - _KEPT - {"title", "properties", "items", "additionalProperties", "propertyNames", "const", "$defs"}
    if unknown or "const" in node:
        raise ValueError(f"{where}: no translation of {sorted(unknown) or 'const'} into a structural schema")
    if out.get("type") == "integer":
        out["format"] = "int64"
    if "properties" in node:
        out["properties"] = {key: _convert(child, defs, defaults, f"{where}.{key}") for key, child in node["properties"].items()}
    if "items" in node:
        out["items"] = _convert(node["items"], defs, defaults, f"{where}[]")
    if isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _convert(node["additionalProperties"], defs, defaults, f"{where}{{}}")
    return out
