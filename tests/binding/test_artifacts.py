from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.binding.small import OFFERS, stream, view
from tiphys_models.artifacts.tensors import write_tensors
from tiphys_models.binding import agent, learned
from tiphys_models.binding.agent import ACTIONS, load_agent, shapes
from tiphys_models.binding.learned import WEIGHTS, load_score
from tiphys_models.binding.protocol import bind
from tiphys_models.domain.errors import ArtifactRefused, InvalidInput


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
    from tiphys_models.binding.registry import make_agent

    with pytest.raises(ArtifactRefused, match="Missing"):
        load_agent(tmp_path / "none.json")
    with pytest.raises(InvalidInput, match="no binding agent is called 'magic'"):
        make_agent("magic")


def test_a_score_has_a_row_for_each_degree_of_strictness(tmp_path: Path) -> None:
    rows = np.zeros(WEIGHTS)
    rows[0, 3], rows[2, 3] = -1.0, 1.0  # the strictest want what is near, the others what is far
    write_tensors(tmp_path, "score", "score", learned.SCHEMA, {"weights": rows})
    score = load_score(tmp_path / "score.json")
    near = bind(score, OFFERS, stream(max_delay_ms=29.0), view())
    far = bind(score, OFFERS, stream(max_delay_ms=200.0), view())
    assert [OFFERS.all[found.offer].site.name for found in (near, far)] == ["edge", "remote"]
    write_tensors(tmp_path, "short", "score", learned.SCHEMA, {"weights": rows[:1]})
    with pytest.raises(ArtifactRefused, match="arrays must be"):
        load_score(tmp_path / "short.json")
