"""Parsers that extender, binder and operator share take whatever the API server may store, or refuse it with a word."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from tests.extender.streams.test_objects import site as stream_site
from tests.fuzz.feeding import EACH, SEED, case, objects, survives
from tests.fuzz.grammar import GRAMMAR
from tests.fuzz.values import Draw
from tiphys_models.api.catalogue import compile_catalogue, site_seen, variant_seen
from tiphys_models.api.learned_artifact import checked, parts_of_config_map
from tiphys_models.api.learned_model import ConfigMapSource, LearnedModelSpec, parse_model
from tiphys_models.api.routing import Router, route_of
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.base.facts import node_facts, pod_facts
from tiphys_models.base.quantity import MOST_BYTES, MOST_MILLI, cpu_milli, memory_bytes, quantity, timestamp_s

# ---- plain parsers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [case("quantities")])
def test_quantities_are_clamped_or_refused(kind: str) -> None:
    draw = Draw(Random(f"{SEED}/{kind}"), 0.9)
    for number in range(EACH):
        value = draw.quantity()
        if isinstance(value, list | dict):
            continue
        what = f"{kind} {number}: {value!r}"
        taken = survives(what, lambda value=value: quantity(value), InvalidInput)  # type: ignore[misc]
        if taken:
            assert 0 <= cpu_milli(value) <= MOST_MILLI, what
            assert 0 <= memory_bytes(value) <= MOST_BYTES, what
            assert np.isfinite(quantity(value)), what


@pytest.mark.parametrize("kind", [case("timestamps")])
def test_timestamps_are_finite_or_refused(kind: str) -> None:
    draw = Draw(Random(f"{SEED}/{kind}"), 0.9)
    for number in range(EACH):
        value = draw.time()
        what = f"{kind} {number}: {value!r}"
        if survives(what, lambda value=value: timestamp_s(value), InvalidInput):  # type: ignore[misc]
            found = timestamp_s(value)
            assert found is None or np.isfinite(found), what


@pytest.mark.parametrize("kind", [case("Pod")])
def test_facts_of_pods_are_bounded_or_refused(kind: str) -> None:
    read = 0
    for what, obj in objects(kind):
        if survives(what, lambda obj=obj: pod_facts(obj), InvalidInput, AttributeError, TypeError, ValueError):  # type: ignore[misc]
            facts, read = pod_facts(obj), read + 1
            assert 0 <= facts.cpu_milli <= 200 * MOST_MILLI, what
            assert 0 <= facts.memory_bytes <= 200 * MOST_BYTES, what
    assert read > EACH / 3, "hardly any got deep"


@pytest.mark.parametrize("kind", [case("Node")])
def test_facts_of_nodes_are_bounded_or_refused(kind: str) -> None:
    for what, obj in objects(kind):
        if survives(what, lambda obj=obj: node_facts(obj), InvalidInput, AttributeError, TypeError, ValueError):  # type: ignore[misc]
            facts = node_facts(obj)
            assert 0 <= facts.cpu_milli <= MOST_MILLI, what
            assert 0 <= facts.memory_bytes <= MOST_BYTES, what


@pytest.mark.parametrize("kind", [case("SchedulingPolicy")])
def test_routes_are_made_or_refused_and_match_any_labels(kind: str) -> None:
    draw = Draw(Random(SEED), 0.3)
    labels = [found for _ in range(20) if isinstance(found := GRAMMAR["Pod"](draw.random)["metadata"].get("labels"), dict)]
    for what, obj in objects(kind):
        if survives(what, lambda obj=obj: route_of(obj), InvalidInput):  # type: ignore[misc]
            route = route_of(obj)
            router = Router([route])
            for each in labels[:3]:
                survives(what, lambda r=router, n=route.namespace, e=each: r.route(n, e))  # type: ignore[misc]
            router.remove(route)
            assert list(router) == [], what


@pytest.mark.parametrize("kind", [case("LearnedModel")])
def test_learned_models_are_parsed_or_refused(kind: str) -> None:
    for what, obj in objects(kind):
        survives(what, lambda obj=obj: parse_model(obj), InvalidInput)  # type: ignore[misc]


@pytest.mark.parametrize("kind", [case("ConfigMap")])
def test_weights_in_config_maps_are_refused_and_never_more_than_that(kind: str) -> None:
    source = ConfigMapSource(name="w")
    spec = LearnedModelSpec.model_validate(
        {"policy": "faasrank", "weights": {"configMap": {"name": "w"}}, "sha256": "0" * 64, "featureSchema": "faasrank-42/1"}
    )
    for what, obj in objects(kind):

        def check(obj: dict[str, Any] = obj) -> None:
            checked(spec, parts_of_config_map(spec, source, obj, "w"))

        survives(what, check, ArtifactRefused)


@pytest.mark.parametrize("kind", [case("InferenceSite"), case("ModelVariant")])
def test_catalogues_are_compiled_of_whatever_could_be_read(kind: str) -> None:
    seen_of: Any = site_seen if kind == "InferenceSite" else variant_seen
    known = site_seen(stream_site("site-a"))
    for what, obj in objects(kind):
        if survives(what, lambda obj=obj: seen_of(obj), InvalidInput):  # type: ignore[misc]
            seen = seen_of(obj)
            sites = [known, seen] if kind == "InferenceSite" else [known]
            variants = [seen] if kind == "ModelVariant" else []
            with np.errstate(over="ignore"):  # a delay of 1e308 is no delay that anybody can wait for
                survives(what, lambda s=sites, v=variants: compile_catalogue("site-a", s, v, 1e9))  # type: ignore[misc]
