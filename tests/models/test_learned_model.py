"""LearnedModel: what a spec may say, and which bytes it accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.publications import BROKEN, published
from tiphys_models.api.learned_artifact import checked, parts_of_config_map, parts_of_file
from tiphys_models.api.learned_model import SERVES, parse_model
from tiphys_models.api.reasons import ModelReason
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.placement.untrained import write_untrained

GOOD: dict[str, Any] = {
    "policy": "faasrank",
    "weights": {"configMap": {"name": "m-1"}},
    "sha256": "a" * 64,
    "featureSchema": "faasrank-42/1",
}
BAD_SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "no weights": ({k: v for k, v in GOOD.items() if k != "weights"}, "spec.weights"),
    "weights from nowhere": (GOOD | {"weights": {}}, "exactly one"),
    "weights from both": (GOOD | {"weights": {"configMap": {"name": "m-1"}, "file": "m.safetensors"}}, "exactly one"),
    "file elsewhere": (GOOD | {"weights": {"file": "../m.safetensors"}}, "spec.weights.file"),
    "file of another kind": (GOOD | {"weights": {"file": "m.pkl"}}, "spec.weights.file"),
    "a rule": (GOOD | {"policy": "greedy"}, "learned"),
    "a policy that cannot be a name": (GOOD | {"policy": "Oracle!"}, "spec.policy"),
    "a rule of scaling": (GOOD | {"policy": "hpa"}, "learned"),
    "a planner without weights": (GOOD | {"policy": "cost-lean"}, "learned"),
    "a static stream policy": (GOOD | {"policy": "closest"}, "learned"),
    "unknown stage": (GOOD | {"stage": "live"}, "spec.stage"),
    "short digest": (GOOD | {"sha256": "abc"}, "spec.sha256"),
    "no features": (GOOD | {"featureSchema": ""}, "spec.featureSchema"),
    "value that is no number": (GOOD | {"evaluation": {"metric": "m", "value": "good"}}, "spec.evaluation.value"),
    "key with a slash": (GOOD | {"weights": {"configMap": {"name": "m", "key": "a/b"}}}, "spec.weights.configMap.key"),
}


def test_the_default_stage_serves_nobody() -> None:
    spec = parse_model({"spec": GOOD})
    assert spec.stage == "candidate"
    assert SERVES[spec.stage] == frozenset()


def test_stages_serve_more_and_more_modes_until_retired() -> None:
    assert [sorted(SERVES[stage]) for stage in ("shadow", "canary", "active", "retired")] == [
        ["Shadow"], ["Canary", "Shadow"], ["Active", "Canary", "Shadow"], [],
    ]  # fmt: skip


@pytest.mark.parametrize("name", BAD_SPECS)
def test_a_bad_spec_is_refused_with_the_field_or_the_rule(name: str) -> None:
    spec, said = BAD_SPECS[name]
    with pytest.raises(InvalidInput, match=said):
        parse_model({"spec": spec})


def test_what_is_published_is_accepted(tmp_path: Path) -> None:
    config_map, model = published(tmp_path)
    spec = parse_model(model)
    assert spec.weights.config_map is not None
    loaded = checked(spec, parts_of_config_map(spec, spec.weights.config_map, config_map, "m"))
    assert loaded.card.sha256 == spec.sha256


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_bytes_are_refused_with_a_documented_reason(tmp_path: Path, kind: str) -> None:
    config_map, model = published(tmp_path)
    spoil, reason = BROKEN[kind]
    spoil(config_map, model)
    spec = parse_model(model)
    assert spec.weights.config_map is not None
    with pytest.raises(ArtifactRefused) as refused:
        checked(spec, parts_of_config_map(spec, spec.weights.config_map, config_map, "m"))
    assert refused.value.reason == reason
    ModelReason(reason)


def test_a_card_in_the_spec_wins_over_the_one_beside_the_weights(tmp_path: Path) -> None:
    config_map, model = published(tmp_path)
    model["spec"]["card"] = config_map["data"].pop("card.json")
    spec = parse_model(model)
    assert spec.weights.config_map is not None
    assert checked(spec, parts_of_config_map(spec, spec.weights.config_map, config_map, "m")).card.name == "card"


def test_weights_may_be_a_file_of_the_models_volume(tmp_path: Path) -> None:
    card = write_untrained(tmp_path, "big", np.random.default_rng(0)).card
    changes = {"weights": {"file": "big.safetensors"}, "sha256": card.sha256, "featureSchema": card.feature_schema}
    spec = parse_model({"spec": GOOD | changes})
    assert checked(spec, parts_of_file(spec, tmp_path, "big.safetensors", "m")).value.network.card == card
    for directory in (tmp_path / "elsewhere", None):
        with pytest.raises(ArtifactRefused, match="Missing"):
            parts_of_file(spec, directory, "big.safetensors", "m")


def test_a_policy_that_nobody_knows_is_refused_by_what_it_is_called(tmp_path: Path) -> None:
    config_map, model = published(tmp_path)
    model["spec"]["policy"] = "oracle"
    spec = parse_model(model)
    assert spec.weights.config_map is not None
    assert spec.system is None
    with pytest.raises(ArtifactRefused, match="'oracle'") as refused:
        checked(spec, parts_of_config_map(spec, spec.weights.config_map, config_map, "m"))
    assert ModelReason(refused.value.reason) is ModelReason.UNKNOWN_POLICY
