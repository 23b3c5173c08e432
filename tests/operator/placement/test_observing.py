from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import policy_object
from tiphys_models.artifacts.files import directories
from tiphys_models.artifacts.shipped import SHIPPED
from tiphys_models.placement.untrained import write_untrained
from tiphys_operator.placement.models_found import ModelFound, ModelRefused, ModelShelf, ShippedShelf
from tiphys_operator.placement.observation import AnswerCounts, policy_seen


@pytest.mark.parametrize(
    "status",
    [{"conditions": "none"}, {"conditions": [{"type": 1}]}, {"matchingPods": "many"}, {"observedGeneration": -1}, {"decisions": []}],
)
def test_a_status_that_cannot_be_read_counts_as_empty(status: dict[str, Any]) -> None:
    assert policy_seen(policy_object() | {"status": status}).status.conditions == []


def test_fields_of_a_newer_release_are_left_out() -> None:
    seen = policy_seen(policy_object(future="x") | {"status": {"activePolicy": "greedy", "future": {"a": 1}}})
    assert seen.invalid == ""
    assert seen.status.active_policy == "greedy"


def test_counts_that_are_added_and_taken_away_are_none() -> None:
    counts = AnswerCounts(scored=3, fallback=2, neutral=1, shadow_agreed=1, shadow_compared=2)
    assert counts.plus(counts).minus(counts).minus(counts).empty


def test_of_the_shipped_weights_only_those_of_placement_policies_are_read() -> None:
    there = {card.stem for directory in directories() for card in directory.glob("*.json")}
    assert set(ShippedShelf(directories(), SHIPPED).scan()) == set(SHIPPED) < there


def test_no_directory_holds_no_models(tmp_path: Path) -> None:
    assert ModelShelf(None).scan() == {}
    assert ModelShelf(tmp_path / "absent").scan() == {}


def test_models_are_found_by_name_and_broken_ones_refused(tmp_path: Path) -> None:
    good = write_untrained(tmp_path, "good", np.random.default_rng(0))
    write_untrained(tmp_path, "cut", np.random.default_rng(0))
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(cut.read_bytes()[:-5])
    (tmp_path / "alone.json").write_text((tmp_path / "good.json").read_text())
    (tmp_path / "text.json").write_text("{}")
    (tmp_path / "text.safetensors").write_bytes(b"")
    (tmp_path / "renamed.json").write_text((tmp_path / "good.json").read_text())
    (tmp_path / "renamed.safetensors").write_bytes((tmp_path / "good.safetensors").read_bytes())
    (tmp_path / "notes.txt").write_text("no model")
    found = ModelShelf(tmp_path).scan()
    assert found["good"] == ModelFound("faasrank", good.card.sha256)
    reasons = {name: model.reason for name, model in found.items() if isinstance(model, ModelRefused)}
    assert reasons == {"cut": "DigestMismatch", "alone": "Missing", "text": "CardInvalid", "renamed": "CardInvalid"}


def test_a_model_that_changes_is_read_again_and_one_that_goes_is_forgotten(tmp_path: Path) -> None:
    shelf = ModelShelf(tmp_path)
    first = write_untrained(tmp_path, "m", np.random.default_rng(0))
    before = shelf.stamps()
    assert shelf.scan() == {"m": ModelFound("faasrank", first.card.sha256)}
    second = write_untrained(tmp_path, "m", np.random.default_rng(1))
    os.utime(tmp_path / "m.json", ns=(1, 1))  # a coarse file system clock may show no difference
    assert shelf.stamps() != before
    assert shelf.scan() == {"m": ModelFound("faasrank", second.card.sha256)}
    (tmp_path / "m.json").unlink()
    assert shelf.scan() == {}
