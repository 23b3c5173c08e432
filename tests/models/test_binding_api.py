from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.binding_corpus import BAD, CASES, GOOD, GOOD_CASES, POLICY, SITE
from tiphys_models.api.inference_site import parse_site
from tiphys_models.api.model_variant import parse_variant
from tiphys_models.api.stream_policy import StreamPolicySpec, parse_stream_policy
from tiphys_models.base.errors import InvalidInput

PARSE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "InferenceSite": parse_site,
    "ModelVariant": parse_variant,
    "StreamPolicy": parse_stream_policy,
}


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_model_refuses_what_the_schema_refuses(kind: str, name: str) -> None:
    spec, expected = BAD[kind][name]
    with pytest.raises(InvalidInput, match=r"^spec") as refused:
        PARSE[kind]({"spec": spec})
    assert expected.removeprefix("spec.").split(".")[-1] in str(refused.value)


@pytest.mark.parametrize(("kind", "name"), GOOD_CASES)
def test_the_model_takes_what_the_schema_takes(kind: str, name: str) -> None:
    PARSE[kind]({"spec": GOOD[kind][name]})


def test_by_default_nothing_is_bound_and_nobody_is_probed() -> None:
    policy = parse_stream_policy({"spec": POLICY})
    assert (policy.mode, policy.policy, policy.fallback, policy.lease_seconds) == ("Off", "relative-load", "relative-load", 10)
    assert (policy.ceiling, policy.recovery_ceiling, policy.model_name) == (0.9, 0.7, None)
    assert parse_site({"spec": SITE}).probe is None


def test_a_learned_policy_needs_weights_of_its_own_name_unless_told_otherwise() -> None:
    assert StreamPolicySpec.model_validate(POLICY | {"policy": "aset"}).model_name == "aset"
    assert StreamPolicySpec.model_validate(POLICY | {"policy": "aset", "model": "ours"}).model_name == "ours"
