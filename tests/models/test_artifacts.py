from __future__ import annotations

import json
import os
import pickle  # noqa: TID251 - to make the file an attacker would send
import time
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.artifacts.work import SCORING
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.outlook import SCHEMA_OUTLOOK, WIDTH
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.untrained import write_untrained


@pytest.fixture
def card_path(tmp_path: Path) -> Path:
    write_untrained(tmp_path, "m", np.random.default_rng(0))
    return tmp_path / "m.json"


def edit_card(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def put_weights(path: Path, weights: bytes) -> None:
    path.with_suffix(".safetensors").write_bytes(weights)
    edit_card(path, sha256=sha256(weights).hexdigest())


def changed_tensors(path: Path, **changes: Any) -> bytes:
    tensors = load(path.with_suffix(".safetensors").read_bytes())
    return bytes(save({k: v for k, v in (tensors | changes).items() if v is not None}))


def refusal(path: Path) -> str:
    with pytest.raises(ArtifactRefused) as caught:
        load_network(path)
    return caught.value.reason


def test_a_good_artifact_loads_and_missing_inputs_count_as_the_mean(card_path: Path) -> None:
    network = load_network(card_path)
    rows = np.zeros((2, 26), np.float32)
    rows[1] = np.nan
    scores = network(rows)
    assert scores[0] == pytest.approx(scores[1])  # the fixture's means are zero


def test_inputs_are_clipped_to_the_trained_range(card_path: Path) -> None:
    network = load_network(card_path)
    far = np.full((2, 26), 1e30, np.float32)
    far[1] = network.scale * network.card.clip
    assert network(far)[0] == pytest.approx(network(far)[1])


def test_missing_files(card_path: Path) -> None:
    assert refusal(card_path.with_name("other.json")) == "Missing"
    card_path.with_suffix(".safetensors").unlink()
    assert refusal(card_path) == "Missing"


def test_a_flipped_bit_is_noticed(card_path: Path) -> None:
    weights = bytearray(card_path.with_suffix(".safetensors").read_bytes())
    weights[-1] ^= 1
    card_path.with_suffix(".safetensors").write_bytes(bytes(weights))
    assert refusal(card_path) == "DigestMismatch"


def test_a_truncated_file_is_noticed_even_with_a_matching_digest(card_path: Path) -> None:
    put_weights(card_path, card_path.with_suffix(".safetensors").read_bytes()[:-100])
    assert refusal(card_path) == "WeightsUnreadable"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(card_path: Path, value: float) -> None:
    bias = np.full(32, value, np.float32)
    put_weights(card_path, changed_tensors(card_path, **{"actor.0.bias": bias}))
    assert refusal(card_path) == "NotFinite"


@pytest.mark.parametrize(
    "changes",
    [
        {"actor.0.weight": np.zeros((25, 32), np.float32)},
        {"actor.0.weight": np.zeros((26, 32), np.float64)},
        {"actor.2.bias": np.zeros(2, np.float32)},
        {"actor.1.weight": None},
        {"extra": np.zeros(1, np.float32)},
    ],
)
def test_another_shape_is_refused(card_path: Path, changes: dict[str, Any]) -> None:
    put_weights(card_path, changed_tensors(card_path, **changes))
    assert refusal(card_path) == "ShapeMismatch"


def test_another_feature_schema_is_refused(card_path: Path) -> None:
    edit_card(card_path, feature_schema="faasrank-26/0")
    assert refusal(card_path) == "SchemaMismatch"


@pytest.mark.parametrize(
    "changes",
    [
        {"sha256": "x"},
        {"scale": [0.0] * 26},
        {"mean": ["NaN"] * 26},
        {"name": "../evil"},
        {"scrape_windows_s": []},
        {"epsilon": -1},
        {"mean": None},
    ],
)
def test_a_card_that_says_nonsense_is_refused(card_path: Path, changes: dict[str, Any]) -> None:
    edit_card(card_path, **changes)
    assert refusal(card_path) == "CardInvalid"


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"name": "m"}'])
def test_a_card_that_is_no_card_is_refused(card_path: Path, text: str) -> None:
    card_path.write_text(text)
    assert refusal(card_path) == "CardInvalid"


def test_normalisation_of_another_length_is_refused(card_path: Path) -> None:
    edit_card(card_path, mean=[0.0] * 25)
    assert refusal(card_path) == "ShapeMismatch"


def network_of_widths(card_path: Path, *widths: int) -> None:
    """Weights of a network with these widths beside a card for it."""
    rng = np.random.default_rng(1)
    tensors = {}
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        tensors[f"actor.{index}.weight"] = rng.normal(0, 0.1, (inputs, outputs)).astype(np.float32)
        tensors[f"actor.{index}.bias"] = np.zeros(outputs, np.float32)
    if widths[0] == WIDTH:
        edit_card(card_path, feature_schema=SCHEMA_OUTLOOK, mean=[0.0] * WIDTH, scale=[1.0] * WIDTH)
    put_weights(card_path, bytes(save(tensors)))


@pytest.mark.parametrize(
    "widths", [(26, 257, 1, 1), (26, 1, 257, 1), (26, 256, 128, 1), (42, 200, 150, 1), (26, 1024, 512, 1), (26, 40_000, 1, 1)]
)
def test_a_network_that_would_stall_the_hot_path_is_refused(card_path: Path, widths: tuple[int, ...]) -> None:
    network_of_widths(card_path, *widths)
    assert refusal(card_path) == "TooMuchWork"


def test_the_largest_network_that_is_served_scores_5000_nodes_within_an_answers_budget(card_path: Path) -> None:
    widest = next(w for w in range(SCORING.width, 0, -1) if WIDTH * w + w * 109 + 109 <= SCORING.multiply_adds)
    network_of_widths(card_path, WIDTH, widest, 109, 1)
    network, rows, taken_s = load_network(card_path), np.zeros((5_000, WIDTH), np.float32), []
    for _ in range(9):
        began_s = time.perf_counter()
        network(rows)
        taken_s.append(time.perf_counter() - began_s)
    assert SCORING.multiply_adds - sum(w.size for w, _ in network.weights) < 200, "it is at the bound"
    assert min(taken_s) < 0.020, "some 4 ms are usual: the other tests of this machine are in it"


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("faasrank*.json")), ids=lambda path: path.stem)
def test_shipped_networks_are_far_below_the_bounds(path: Path) -> None:
    network = load_network(path)
    assert sum(weight.size for weight, _ in network.weights) < SCORING.multiply_adds / 10


def test_a_card_file_is_bounded_and_a_pipe_is_not_waited_for(card_path: Path, tmp_path: Path) -> None:
    edit_card(card_path, notes="x" * 2**20)
    assert refusal(card_path) == "TooLarge"
    os.mkfifo(tmp_path / "pipe.json")
    assert refusal(tmp_path / "pipe.json") == "Missing"


def test_a_huge_file_is_refused_before_it_is_read(card_path: Path) -> None:
    with card_path.with_suffix(".safetensors").open("r+b") as file:
        file.truncate(17 * 2**20)
    assert refusal(card_path) == "TooLarge"


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("suffix", [".pkl", ".pt", ".pth", ".bin", ".joblib", ".npy"])
def test_nothing_is_ever_unpickled(card_path: Path, tmp_path: Path, suffix: str) -> None:
    marker = tmp_path / "executed"
    payload = pickle.dumps(Payload(marker))
    evil = card_path.with_suffix(suffix)
    evil.write_bytes(payload)
    assert refusal(evil) == "ForbiddenFormat"
    put_weights(card_path, payload)
    assert refusal(card_path) == "WeightsUnreadable"
    assert not marker.exists()
