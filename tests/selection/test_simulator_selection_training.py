from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiphys_models.artifacts.files import read_parts
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.planners.registry import HEURISTICS, make_planners
from tiphys_models.selection.selectors.surrogate import COMPONENTS, read_surrogate
from tiphys_models.selection.sim.choosers import RandomCandidates
from tiphys_models.selection.sim.episode import FixedCandidate, Planners
from tiphys_models.selection.sim.workloads import make_workload

torch = pytest.importorskip("torch")

from tiphys_models.selection.train.blocks import blocks  # noqa: E402
from tiphys_models.selection.train.moments import Moments, gather, join  # noqa: E402
from tiphys_models.selection.train.selector_fit import fit_surrogate  # noqa: E402
from tiphys_models.selection.train.trainers import PRESETS, Preset, Trainer, scenario_of  # noqa: E402

TINY = {"episodes": 1, "intervals": 12, "epochs": 2, "validation_seeds": (0,), "validation_intervals": 10, "margins": (0.0,)}


@pytest.fixture(scope="module", autouse=True)
def optimisers_imported() -> None:
    """The first optimiser of a process imports for seconds, outside of any test's time limit."""
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).step()


def planners() -> Planners:
    return Planners(make_planners(HEURISTICS))


def tiny(name: str) -> Preset:
    return replace(PRESETS[name], **TINY)  # type: ignore[arg-type]


def test_episodes_are_kept_as_they_are(tmp_path: Path) -> None:
    found = gather(make_workload("regime", "train", 1, 12), planners(), FixedCandidate("cost-lean"), HEURISTICS, every=3)
    found.save(tmp_path / "a.npz")
    again = Moments.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(again.marginals, found.marginals)
    assert len(found.labelled) == -(-len(found) // 3)
    assert len(join([found, again])) == 2 * len(found)
    (tmp_path / "b.npz").write_bytes(b"nothing")
    with pytest.raises(InvalidInput, match=r"b\.npz is no episode"):
        Moments.load(tmp_path / "b.npz")


def test_a_surrogate_learns_differences_that_its_state_explains() -> None:
    """Labels invented so that the first feature decides which candidate is cheap."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 3))
    labels = np.zeros((600, 2, COMPONENTS))
    labels[:, 0, 0], labels[:, 1, 0] = 1e-4 * features[:, 0], -1e-4 * features[:, 0]
    moments = Moments(features, np.zeros((600, 0, COMPONENTS)), np.ones(600), labels, np.zeros(600), np.zeros((600, COMPONENTS)))
    model = fit_surrogate(moments, ("a", "b"), (), seed=0, epochs=150, members=1)
    fresh = rng.normal(size=(200, 3))
    best = [int(model.predict(f, np.zeros((0, COMPONENTS)), 1.0).marginal[:, 0].argmin()) for f in fresh]
    assert np.mean(np.array(best) == (fresh[:, 0] > 0)) > 0.9


@pytest.mark.parametrize("name", PRESETS)
def test_training_gives_an_artifact_that_serves_and_one_seed_gives_one_result(name: str, tmp_path: Path) -> None:
    first, second = (Trainer(tiny(name), tmp_path / part, lambda _: None, HEURISTICS).train(3) for part in ("a", "b"))
    for key, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[key])
    assert first.validation == second.validation
    assert set(first.validation) == {f"{w}/{k}" for w in ("stationary", "regime") for k in ("default", "cost-at-sla")}
    written = write_tensors(tmp_path, name, name, first.schema, first.arrays, **first.card)
    assert written.card.feature_schema == first.schema
    if name == "metanet":
        assert read_surrogate(read_parts(tmp_path / "metanet.json")).candidates == HEURISTICS


def test_one_episode_of_four_meets_hosts_that_resume() -> None:
    assert [scenario_of(episode).resume_s for episode in range(8)] == [0, 0, 0, 5, 0, 0, 0, 30]


def test_training_goes_on_with_the_episodes_it_finds(tmp_path: Path) -> None:
    told: list[str] = []
    Trainer(tiny("dqn"), tmp_path, told.append, HEURISTICS).train(0)
    assert len(told) == 2
    Trainer(tiny("dqn"), tmp_path, told.append, HEURISTICS).train(0)
    assert len(told) == 2


def test_the_papers_data_set_has_a_block_for_every_policy() -> None:
    rows = blocks("regime", Planners(make_planners(("one-per-host",))), 0)
    assert 20 < len(rows) <= 100
    assert set(rows[:, 0]) == {0.0}
    assert (rows[:, 1] > 0).all()
    assert rows.shape[1] == 430


def test_random_behaviour_executes_every_candidate() -> None:
    found = gather(make_workload("regime", "train", 2, 40), planners(), RandomCandidates(np.random.default_rng(1)), (), every=1)
    assert set(found.taken) == {0.0, 1.0, 2.0}
    assert (found.marginals[:, :, 0].argmin(axis=1) == HEURISTICS.index("cost-lean")).mean() > 0.5
    assert (found.attributed[:, :3] > 0).all()
