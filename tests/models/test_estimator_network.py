"""The network over the estimator: nothing before it is trained, bounded whatever its weights are, refused if they are broken."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from tests.models.test_artifacts import changed_tensors, edit_card, put_weights
from tests.placement.test_patient import _view, busy
from tiphys_models.artifacts.loaders import load_file
from tiphys_models.base.errors import ArtifactRefused
from tiphys_models.placement.estimator_network import EstimatorNetwork, write
from tiphys_models.placement.learned_profiles import saved_by_warmth
from tiphys_models.placement.patient import Estimator
from tiphys_models.placement.residual import MOST_ADDED, NODE_INPUTS, WAIT_INPUTS, Head, flat, heads_of

UNITS = 4


def heads(scale: float, seed: int = 0, units: int = UNITS) -> tuple[Head, Head]:
    """Drawn weights, whose way out is scaled."""
    rng = np.random.default_rng(seed)

    def one(width: int) -> Head:
        out = scale * rng.normal(size=width), scale * rng.normal(size=units)
        return Head(out[0], rng.normal(size=(width, units)), rng.normal(size=units), out[1])

    return one(len(NODE_INPUTS)), one(len(WAIT_INPUTS))


@pytest.mark.parametrize("function", ["shop/0", "shop/3", "shop/7", "shop/unknown"])
def test_an_untrained_network_answers_what_the_estimator_answers(function: str) -> None:
    state = busy()
    view, memory = _view(state, function), state.memory()
    network, estimator = EstimatorNetwork(heads(0.0)), Estimator()
    scores = estimator.score(view, memory)
    np.testing.assert_allclose(network.score(view, memory), scores, rtol=0, atol=1e-12)
    best = int(scores.argmax())
    for before in (0, 1, 50):
        assert network.not_yet(view, scores, best, before) == estimator.not_yet(view, scores, best, before)


def test_whatever_the_weights_are_they_move_a_cost_by_what_warmth_saves_and_no_further() -> None:
    state = busy()
    view, memory = _view(state, "shop/3"), state.memory()
    moved = np.abs(EstimatorNetwork(heads(1e6)).score(view, memory) - Estimator().score(view, memory))
    most_s = MOST_ADDED * saved_by_warmth(view.believed().profile)
    assert moved.max() == pytest.approx(most_s)


def test_a_network_hears_how_full_nodes_are_beyond_what_the_estimator_counts() -> None:
    state = busy()
    view, memory = _view(state, "shop/3"), state.memory()
    full = heads(0.0)
    full[0].straight[NODE_INPUTS.index("filled")] = 0.2
    added = Estimator().score(view, memory) - EstimatorNetwork(full).score(view, memory)
    filled = (view.inflight_memory_bytes + view.believed().idle_bytes) / view.memory_capacity_bytes
    np.testing.assert_allclose(added, 0.2 * filled * saved_by_warmth(view.believed().profile), atol=1e-12)
    assert filled.max() > filled.min()


def test_both_heads_come_back_out_of_one_row_of_numbers() -> None:
    first = heads(1.0, seed=3)
    for head, again in zip(first, heads_of(flat(first)), strict=True):
        for part, same in zip(head, again, strict=True):
            np.testing.assert_array_equal(part, same)


def test_an_artifact_decides_as_the_weights_it_was_written_from(tmp_path: Path) -> None:
    write(tmp_path, "mine", heads(0.1))
    loaded = load_file(tmp_path / "mine.json")
    state = busy()
    view = _view(state, "shop/3")
    assert (loaded.system, loaded.policy, loaded.value.digest) == ("placement", "estimator-network", loaded.digest)
    np.testing.assert_allclose(
        loaded.value.score(view, state.memory()), EstimatorNetwork(heads(0.1)).score(view, state.memory()), rtol=0, atol=1e-5
    )


def test_broken_weights_are_refused_with_the_reason(tmp_path: Path) -> None:
    card = tmp_path / "mine.json"

    def refusal() -> str:
        with pytest.raises(ArtifactRefused) as caught:
            load_file(card)
        return caught.value.reason

    write(tmp_path, "mine", heads(0.1))
    put_weights(card, changed_tensors(card, **{"node.out": np.full(UNITS, np.nan, np.float32)}))
    assert refusal() == "NotFinite"
    write(tmp_path, "mine", heads(0.1))
    put_weights(card, changed_tensors(card, **{"wait.bias": np.zeros(UNITS + 1, np.float32)}))
    assert refusal() == "ShapeMismatch"
    write(tmp_path, "mine", heads(0.1))
    edit_card(card, tensors={})
    assert refusal() == "ShapeMismatch"
    write(tmp_path, "mine", heads(0.1))
    edit_card(card, tensors={"node.bias": [100_000]})
    assert refusal() == "TooMuchWork"
    write(tmp_path, "mine", heads(0.1))
    edit_card(card, feature_schema="estimator-parts/0")
    assert refusal() == "SchemaMismatch"


def test_the_shipped_network_judges_five_hundred_candidates_fast() -> None:
    """Five milliseconds of processor time are several times what it takes, with five thousand open calls."""
    state = busy(500, 5000, functions=200)
    view, memory, policy = _view(state, "shop/3"), state.memory(), EstimatorNetwork(heads(0.1, units=16))
    spans = []
    for _ in range(9):
        started = time.thread_time()
        policy.score(view, memory)
        spans.append(time.thread_time() - started)
    assert float(np.median(spans)) < 0.005
