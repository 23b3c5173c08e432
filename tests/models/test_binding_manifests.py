"""The samples: valid, of one piece, and the Gateway's weights are what the catalogue says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tiphys_models.api.catalogue import Catalogue, compile_catalogue, site_seen, variant_seen
from tiphys_models.api.inference_site import parse_site
from tiphys_models.api.model_variant import parse_variant
from tiphys_models.api.stream_policy import parse_stream_policy

MANIFESTS = Path(__file__).parents[2] / "manifests"
PARSE: dict[str, Any] = {"InferenceSite": parse_site, "ModelVariant": parse_variant, "StreamPolicy": parse_stream_policy}


def documents(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MANIFESTS / path).read_text()))


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class ParentRef(Strict):
    name: str


class Header(Strict):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$", max_length=256)]
    type: Literal["Exact", "RegularExpression"] = "Exact"
    value: Annotated[str, Field(min_length=1, max_length=4096)]


class Match(Strict):
    headers: list[Header] = Field(max_length=16)


class Backend(Strict):
    name: str
    port: Annotated[int, Field(ge=1, le=65535)]
    weight: Annotated[int, Field(ge=0, le=1_000_000)]


class Timeouts(Strict):
    request: Annotated[str, Field(pattern=r"^([0-9]{1,5}(h|m|s|ms)){1,4}$")]


class Rule(Strict):
    matches: list[Match] = Field(default_factory=list, max_length=64)
    backend_refs: list[Backend] = Field(min_length=1, max_length=16)
    timeouts: Timeouts


class RouteSpec(Strict):
    """What the sample uses of an HTTPRoute, with the bounds of gateway.networking.k8s.io/v1."""

    parent_refs: list[ParentRef] = Field(min_length=1, max_length=32)
    hostnames: list[str] = Field(max_length=16)
    rules: list[Rule] = Field(min_length=1, max_length=16)


def sample() -> Catalogue:
    """Of the samples, with one ready replica of each Service."""
    objects = documents("samples/binding.yaml")
    sites = [site_seen(o) for o in objects if o["kind"] == "InferenceSite"]
    variants = [variant_seen(o | {"status": {"replicas": 1}}) for o in objects if o["kind"] == "ModelVariant"]
    return compile_catalogue("antenna-1", sites, variants, now_s=0.0)


def test_the_sample_of_binding_is_valid_and_names_only_known_fields() -> None:
    for document in documents("samples/binding.yaml"):
        known = PARSE[document["kind"]](document).model_dump(by_alias=True, mode="json")
        assert set(document["spec"]) <= set(known)


def test_everything_in_the_sample_can_be_bound_from_its_access_site() -> None:
    found = sample()
    assert [o.name for o in found.offers.all] == ["antenna-1/ssd-small", "antenna-1/tiny-cpu", "cloud/yolo-large"]
    assert found.why_not == {}
    assert found.up.all()
    assert np.isfinite(found.network_ms).all()
    (policy,) = [parse_stream_policy(o) for o in documents("samples/binding.yaml") if o["kind"] == "StreamPolicy"]
    assert policy.access_site == "antenna-1"


def test_the_gateways_weights_are_the_capacities_of_the_offers() -> None:
    route, service, addresses = documents("gateway/httproute.yaml")
    assert (route["apiVersion"], route["kind"]) == ("gateway.networking.k8s.io/v1", "HTTPRoute")
    spec = RouteSpec.model_validate(route["spec"])
    offers = {o.variant.name: o for o in sample().offers.all}
    strict, everybody = spec.rules
    assert {b.name: b.weight for b in everybody.backend_refs} == {name: o.capacity_qps for name, o in offers.items()}
    assert [b.name for b in strict.backend_refs] == [name for name, o in offers.items() if o.variant.accuracy >= 40]
    assert {b.name: b.port for b in everybody.backend_refs} == {"ssd-small": 8000, "tiny-cpu": 8000, "yolo-large": 443}
    away = [name for name, o in offers.items() if not o.endpoint.endswith(".svc:8000")]
    assert [service["metadata"]["name"]] == [addresses["metadata"]["labels"]["kubernetes.io/service-name"]] == away
    assert [port["port"] for port in service["spec"]["ports"]] == [port["port"] for port in addresses["ports"]] == [443]
