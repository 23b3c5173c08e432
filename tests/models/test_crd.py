from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import policy_object
from tests.policy_corpus import BAD_SPECS, GOOD_SPECS
from tiphys_models.api import crd, resources
from tiphys_models.api.learned_model import CARD_MAX_BYTES
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.base.errors import InvalidInput

ROOT = Path(__file__).parents[2]


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def all_nodes() -> list[tuple[str, dict[str, Any]]]:
    return [
        pair
        for resource in resources.RESOURCES
        for part in ("spec", "status")
        if part == "spec" or resource.status is not None
        for pair in nodes(crd.spec_schema(resource) if part == "spec" else crd.status_schema(resource), f"{part} of {resource.kind}")
    ]


@pytest.mark.parametrize("resource", resources.RESOURCES, ids=lambda r: r.kind)
def test_the_manifest_is_what_the_models_say(resource: resources.Resource) -> None:
    written = (ROOT / "manifests" / "crds" / resource.file_name).read_text()
    assert written == crd.render(of=resource), "run: python -m tiphys_models.api.crd"


@pytest.mark.parametrize("resource", resources.RESOURCES, ids=lambda r: r.kind)
def test_rendering_it_twice_gives_the_same_bytes_without_yaml_anchors(resource: resources.Resource) -> None:
    assert crd.render(of=resource) == crd.render(of=resource)
    assert "&id" not in crd.render(of=resource)


def test_the_schema_is_structural() -> None:
    for path, node in all_nodes():
        assert node.get("type") in {"object", "array", "string", "integer", "number", "boolean"}, path
        assert not {"$ref", "anyOf", "oneOf", "allOf", "title", "const", "propertyNames", "patternProperties", "nullable"} & set(node), path


def test_every_field_is_described() -> None:
    undescribed = [path for path, node in all_nodes() if not node.get("description") and not path.endswith(("[]", "{}"))]
    assert undescribed == []


def test_every_list_map_and_string_is_bounded() -> None:
    for path, node in all_nodes():
        match node["type"]:
            case "array":
                assert node["maxItems"] <= (256 if "PlacementPlan" in path else 64), path
            case "object" if "additionalProperties" in node:
                assert node["maxProperties"] <= 64, path
            case "string":
                assert "enum" in node or node["maxLength"] <= (CARD_MAX_BYTES if path.endswith(".card") else 1024), path


def test_defaults_are_in_the_spec_only_and_equal_those_of_the_model() -> None:
    assert not [path for path, node in all_nodes() if path.startswith("status") and "default" in node]
    schema = crd.spec_schema()["properties"]
    defaults = parse_spec(policy_object()).model_dump(by_alias=True, mode="json")
    for name, node in schema.items():
        if "default" in node and node["default"] != {}:
            assert node["default"] == defaults[name]
    for name, node in schema["guardrails"]["properties"].items():
        assert node["default"] == defaults["guardrails"][name]


def test_packagers_can_have_it_kept_on_uninstall() -> None:
    assert crd.crd(crd.KEEP_ANNOTATION)["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in crd.crd()["metadata"]


def test_the_bad_corpus_is_large() -> None:
    assert len(BAD_SPECS) >= 40


@pytest.mark.parametrize("name", BAD_SPECS)
def test_the_model_refuses_what_the_schema_refuses(name: str) -> None:
    obj = policy_object()
    obj["spec"] = BAD_SPECS[name][0]
    with pytest.raises(InvalidInput, match=r"^spec"):
        parse_spec(obj)


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_the_model_takes_what_the_schema_takes(name: str) -> None:
    parse_spec(policy_object(**GOOD_SPECS[name]))


SAMPLES = [path for path in sorted((ROOT / "manifests" / "samples").glob("*.yaml")) if path.stem != "binding"]
"""That one has tests of its own."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_valid_and_name_only_known_fields(sample: Path) -> None:
    for document in yaml.safe_load_all(sample.read_text()):
        spec = parse_scaling(document) if document["kind"] == "ScalingPolicy" else parse_spec(document)
        known = spec.model_dump(by_alias=True, mode="json")
        assert set(document["spec"]) <= set(known)
