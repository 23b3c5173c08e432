from __future__ import annotations

import pytest

from tests.scaling_corpus import BAD, GOOD, LEAST
from tiphys_models.api.scaling_policy import parse_scaling
from tiphys_models.base.errors import InvalidInput


@pytest.mark.parametrize("name", BAD)
def test_the_model_refuses_what_the_schema_refuses(name: str) -> None:
    spec, expected = BAD[name]
    with pytest.raises(InvalidInput, match=r"^spec") as refused:
        parse_scaling({"spec": spec})
    assert expected.removeprefix("spec.").split(".")[-1] in str(refused.value)


@pytest.mark.parametrize("name", GOOD)
def test_the_model_takes_what_the_schema_takes(name: str) -> None:
    parse_scaling({"spec": GOOD[name]})


def test_by_default_nothing_is_changed_and_the_rule_recommends() -> None:
    spec = parse_scaling({"spec": LEAST})
    assert (spec.mode, spec.agent.kind, spec.vertical, spec.interval_seconds) == ("Recommend", "rule", None, 15)
