"""What one cluster has learned, as an artifact for another one: export, checks, and who takes it."""

from __future__ import annotations

import json
import math
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from tests.builders import pod, state
from tests.extender.harness import Extender
from tiphys_models.artifacts.loaders import load_file
from tiphys_models.artifacts.store import Source
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.placement.checkpoint import Learned, learned_of
from tiphys_models.placement.placed import CallEnd
from tiphys_models.placement.published_profiles import export
from tiphys_models.placement.state import PlacementState


def watched(calls: int = 30, core_seconds: float = 6.0) -> PlacementState:
    """Calls of two functions, one of which ended once only."""
    made = state(2)
    for i in range(calls + 1):
        function = "default/f" if i < calls else "default/seldom"
        made.bound(pod(f"c{i}", function=function, node="n0", scheduled_s=10.0 * i), 10.0 * i)
        made.ran(f"c{i}", 10.0 * i + 4.0, CallEnd(start_s=1.0, core_seconds=core_seconds, cold=i % 2 == 0))
    return made


def learned(**changes: Any) -> Learned:
    return learned_of(watched(**changes), 0.0)


def test_what_was_learned_is_exported_checked_and_taken_by_name(tmp_path: Path) -> None:
    assert export(learned(), tmp_path, "estimator") == (1, 1)
    loaded = load_file(tmp_path / "estimator.json")
    assert (loaded.system, loaded.policy, set(loaded.value.profiles)) == ("placement", "estimator", {"default/f"})
    start_s, warm, cold, cores = loaded.value.profiles["default/f"]
    assert (start_s, warm, cold, cores) == pytest.approx((1.0, 6.0, 6.0, 2.0), rel=0.15)


def test_nothing_is_exported_of_functions_whose_processor_time_nobody_saw(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nothing to export"):
        export(learned(core_seconds=math.nan), tmp_path, "estimator")


def test_a_card_has_room_for_the_functions_with_the_most_calls(tmp_path: Path) -> None:
    found = learned()
    row = found.functions["default/f"]
    names = [f"namespace-of-some-length/function-{i:05d}" for i in range(3000)]
    many = Learned(0.0, {name: row + np.where(np.arange(len(row)) == 7, i, 0) for i, name in enumerate(names)}, {}, found.lives)
    taken, left = export(many, tmp_path, "estimator")
    assert taken + left == 3000
    assert (tmp_path / "estimator.json").stat().st_size < 65_536
    assert names[-1] in load_file(tmp_path / "estimator.json").value.profiles


@pytest.mark.parametrize(("column", "value"), [(0, -1.0), (1, 1e9), (3, 0.0), (3, 1e6)])
def test_numbers_that_no_call_can_have_are_refused(tmp_path: Path, column: int, value: float) -> None:
    export(learned(), tmp_path, "estimator")
    card = tmp_path / "estimator.json"
    rows = np.array([[1.0, 2.0, 3.0, 4.0]], np.float32)
    rows[0, column] = value
    weights = save({"profiles": rows})
    card.with_suffix(".safetensors").write_bytes(weights)
    card.write_text(json.dumps(json.loads(card.read_text()) | {"sha256": sha256(weights).hexdigest()}))
    with pytest.raises(ArtifactRefused) as refused:
        load_file(card)
    assert refused.value.reason == "NotFinite"


def test_a_function_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    export(learned(), tmp_path, "estimator")
    card = tmp_path / "estimator.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | {"functions": ["a/b", "a/b"]}))
    with pytest.raises(ArtifactRefused) as refused:
        load_file(card)
    assert refused.value.reason == "CardInvalid"


def test_an_extender_takes_the_active_one_and_lets_it_go_again(tmp_path: Path) -> None:
    export(learned(), tmp_path, "estimator")
    made = Extender()
    made.models.profiles_published = made.state.functions.publish
    store, told = made.models.store, made.state.functions.profiles
    store.set_stage("estimator", "candidate")
    store.take(Source.LEARNED, "estimator", load_file(tmp_path / "estimator.json"))
    assert told.published == {}
    store.set_stage("estimator", "active")
    assert set(told.published) == {"default/f"}
    assert [model["name"] for model in made.models.describe() if model["serves"]] == ["estimator"]
    store.set_stage("estimator", "retired")
    assert told.published == {}
