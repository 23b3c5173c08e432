from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tiphys_models.artifacts.files import Parts, read_part
from tiphys_models.artifacts.tensors import check_tensors, load_checked, write_tensors
from tiphys_models.base.errors import ArtifactRefused

ARRAYS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}
SHAPES: dict[str, tuple[int, ...]] = {"a": (2, 3), "b": (3,)}


def test_what_was_written_is_read_with_its_evidence(tmp_path: Path) -> None:
    write_tensors(tmp_path, "m", "lstm-aco", "x/1", ARRAYS, training={"seed": 3})
    loaded = load_checked(tmp_path / "m.json", "x/1", SHAPES)
    np.testing.assert_array_equal(loaded["a"], ARRAYS["a"])
    assert loaded.card.model_extra == {"training": {"seed": 3}}


@pytest.mark.parametrize(
    ("schema", "shapes", "reason"),
    [
        ("x/2", SHAPES, "SchemaMismatch"),
        ("x/1", {"a": (3, 2), "b": (3,)}, "ShapeMismatch"),
        ("x/1", {"a": (2, 3)}, "ShapeMismatch"),
    ],
)
def test_other_inputs_and_shapes_are_refused(tmp_path: Path, schema: str, shapes: dict[str, tuple[int, ...]], reason: str) -> None:
    write_tensors(tmp_path, "m", "lstm-aco", "x/1", ARRAYS)
    with pytest.raises(ArtifactRefused) as refused:
        load_checked(tmp_path / "m.json", schema, shapes)
    assert refused.value.reason == reason


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path, "m", "lstm-aco", "x/1", ARRAYS)
    card, weights = read_part(tmp_path / "m.json"), read_part(tmp_path / "m.safetensors")

    def refused(card: bytes, weights: bytes) -> str:
        with pytest.raises(ArtifactRefused) as caught:
            check_tensors(Parts(card, weights, "m"), "x/1", SHAPES)
        return caught.value.reason

    assert refused(card, weights[:-1] + b"\x01") == "DigestMismatch"
    assert refused(b"{}", weights) == "CardInvalid"
    with pytest.raises(ArtifactRefused, match="NotFinite"):
        write_tensors(tmp_path, "n", "lstm-aco", "x/1", {"a": np.array([np.nan])})
    half = tmp_path / "half.safetensors"
    half.write_bytes(save({"a": np.ones(2, np.float16)}))
    from hashlib import sha256

    other = card.replace(sha256(weights).hexdigest().encode(), sha256(half.read_bytes()).hexdigest().encode())
    with pytest.raises(ArtifactRefused, match="float32"):
        check_tensors(Parts(other, half.read_bytes(), "m"), "x/1", {"a": (2,)})
    with pytest.raises(ArtifactRefused, match="Missing"):
        load_checked(tmp_path / "none.json", "x/1", SHAPES)
    with pytest.raises(ArtifactRefused, match="ForbiddenFormat"):
        load_checked(tmp_path / "m.safetensors", "x/1", SHAPES)
