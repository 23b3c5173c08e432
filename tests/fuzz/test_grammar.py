"""The grammar itself: what it promises those who feed on it."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from tests.fuzz.grammar import GRAMMAR, HEALTHY
from tiphys_models.api.base import parse
from tiphys_models.api.resources import RESOURCES, Resource
from tiphys_models.base.errors import InvalidInput


@pytest.mark.parametrize("kind", GRAMMAR)
def test_every_object_has_what_the_api_server_guarantees(kind: str) -> None:
    random = Random(f"guarantees of {kind}")
    for number in range(300):
        meta = GRAMMAR[kind](random)["metadata"]
        assert meta["name"], (kind, number)
        assert meta["uid"], (kind, number)
        assert meta["resourceVersion"], (kind, number)
        assert kind == "Node" or meta["namespace"], (kind, number)


@pytest.mark.parametrize("kind", GRAMMAR)
def test_the_same_seed_makes_the_same_objects_and_json_of_them(kind: str) -> None:
    first, second = (str(GRAMMAR[kind](Random(7))) for _ in range(2))
    assert first == second
    for seed in range(50):
        obj = HEALTHY[kind](Random(seed))
        assert orjson.loads(orjson.dumps(obj)) == obj


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_healthy_specs_are_taken_and_some_but_not_all_hostile_ones(resource: Resource) -> None:
    spec: Any = resource.spec
    random = Random(f"specs of {resource.kind}")
    for _ in range(100):
        parse(spec, HEALTHY[resource.kind](random), "is missing")
    refused = 0
    for _ in range(300):
        try:
            parse(spec, GRAMMAR[resource.kind](random), "is missing")
        except InvalidInput:
            refused += 1
    assert 10 < refused < 270
