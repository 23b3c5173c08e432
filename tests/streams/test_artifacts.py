from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.streams.small import OFFERS, stream, view
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import ArtifactRefused, InvalidInput
from tiphys_models.streams import agent, learned
from tiphys_models.streams.agent import ACTIONS, load_agent, shapes
from tiphys_models.streams.kernels import WEIGHTS
from tiphys_models.streams.learned import ScorePolicy, load_score
from tiphys_models.streams.protocol import BindReason, bind


def write(directory: Path, *, table: tuple[float, ...] = (2.0, 8.0), scale: float = 1.0, **card: Any) -> Path:
    """An agent whose last layer's bias prefers relative load."""
    arrays = {name: np.zeros(shape) for name, shape in shapes(2).items()}
    arrays["net.2.bias"][ACTIONS.index("relative-load")] = 1.0
    arrays |= {"table": np.array(table), "scale": np.full_like(arrays["scale"], scale), "weights": np.ones(WEIGHTS)}
    given = {"base": 2, "margin": 0.5, "applications": ["gaming", "cars"], **card}
    write_tensors(directory, "made", "aset", agent.SCHEMA, arrays, **given)
    return directory / "made.json"


def test_an_agent_is_loaded_with_its_policies_base_and_margin(tmp_path: Path) -> None:
    found = load_agent(write(tmp_path))
    assert [p.name for p in found.policies] == list(ACTIONS)
    assert ACTIONS[found.choose(np.zeros_like(found.mean))] == "relative-load"
    held = load_agent(write(tmp_path, margin=2.0))
    assert ACTIONS[held.choose(np.zeros_like(held.mean))] == "farthest"


def test_a_table_binds_by_application_and_others_by_the_score(tmp_path: Path) -> None:
    found = load_agent(write(tmp_path))
    by_name = dict(zip(ACTIONS, found.policies, strict=True))
    for application, policy in (("gaming", "farthest"), ("cars", "score"), ("unheard-of", "score")):
        wanted = stream(application=application)
        assert bind(by_name["table"], OFFERS, wanted, view()) == bind(by_name[policy], OFFERS, wanted, view())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"table": (2.0, 9.0)}, "names no policy"),
        ({"scale": 0.0}, "not positive"),
        ({"base": 10}, "base"),
        ({"applications": ["cars"]}, "arrays must be"),
    ],
)
def test_agents_that_must_not_serve_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactRefused, match=message):
        load_agent(write(tmp_path, **changed))


def test_a_missing_agent_is_refused_and_an_unknown_one_named(tmp_path: Path) -> None:
    from tiphys_models.streams.registry import make_agent

    with pytest.raises(ArtifactRefused, match="Missing"):
        load_agent(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="no stream policy is called 'magic'"):
        make_agent("magic")


def weighted(**weights: float) -> FloatArray:
    return np.array([weights.get(term.replace("-", "_"), 0.0) for term in learned.TERMS])


def test_a_score_is_loaded_and_one_of_another_shape_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path, "score", "score", learned.SCHEMA, {"weights": weighted(near=1.0)})
    found = bind(load_score(tmp_path / "score.json"), OFFERS, stream(), view())
    assert OFFERS.all[found.offer].site.name == "remote"
    write_tensors(tmp_path, "short", "score", learned.SCHEMA, {"weights": np.zeros(WEIGHTS - 1)})
    with pytest.raises(ArtifactRefused, match="arrays must be"):
        load_score(tmp_path / "short.json")


def test_a_score_declines_what_is_dearer_than_it_is_worth_but_nothing_idle() -> None:
    dear = ScorePolicy(weighted(price=1.5, late=1.0, decline=2.0))
    for use, reason in ((0.0, BindReason.BOUND), (0.6, BindReason.BOUND), (0.85, BindReason.NO_CAPACITY)):
        loads = {o.name: use * o.capacity_qps for o in OFFERS.all}
        assert bind(dear, OFFERS, stream(rate_qps=1.0), view(loads)).reason is reason
    thrifty = ScorePolicy(weighted(price=1.5, size=2.0, late=1.0, decline=2.0))
    loads = {o.name: 0.8 * o.capacity_qps for o in OFFERS.all}
    assert [bind(thrifty, OFFERS, stream(rate_qps=1.0, size_kb=kb), view(loads)).reason for kb in (36.0, 48.0)] == [
        BindReason.BOUND,
        BindReason.NO_CAPACITY,
    ]


def test_what_is_down_or_does_another_task_eases_no_price() -> None:
    dear = ScorePolicy(weighted(price=1.5, late=1.0, decline=2.0))
    loads = {o.name: 0.9 * o.capacity_qps for o in OFFERS.all} | {"remote/face": 0.0, "remote/tiny": 0.0}
    wanted = stream(rate_qps=1.0, max_delay_ms=60.0)
    assert bind(dear, OFFERS, wanted, view(loads)).reason is BindReason.BOUND
    assert bind(dear, OFFERS, wanted, view(loads, down=("remote/tiny",))).reason is BindReason.NO_CAPACITY


def test_terms_that_rank_decline_nothing() -> None:
    hated = ScorePolicy(weighted(accuracy=9.0, quick=9.0, fast=9.0, near=9.0))
    assert bind(hated, OFFERS, stream(), view()).reason is BindReason.BOUND
