"""The study of placement plays a policy that no compiler knows in the second simulator."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("numba")

from tests.foreign import brought
from tiphys_models.base.errors import InvalidInput
from tiphys_models.placement.registry import REGISTRY
from tiphys_models.placement.rules import LeastConnections
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.study.definition import Cell, PlacementStudy


class Fewest:
    """Least connections, as if another package brought it."""

    epsilon = 0.5

    def score(self, view: Any, memory: Any) -> Any:
        return LeastConnections().score(view, memory)


def test_its_rows_are_those_of_the_compiled_policy() -> None:
    with brought(REGISTRY, acme_fewest=f"{__name__}:Fewest"):
        study = PlacementStudy(policies=("least-connections", "acme-fewest"), seeds=(0,), quick=True)
        study.check()
        rows = {row["policy"]: row for row in study.play(Cell("M2", FaasScenario(), 0, study.policies)).rows}
    ours, theirs = rows["least-connections"], rows["acme-fewest"]
    assert set(ours) == set(theirs)
    for name in set(ours) - {"policy", "inflight_lower_share"}:  # the latter is against all others, its double among them
        expected = ours[name] if isinstance(ours[name], str) else pytest.approx(ours[name], rel=1e-6)
        assert theirs[name] == expected, name


def test_a_policy_that_nobody_brings_is_refused_with_those_there_are() -> None:
    with brought(REGISTRY, acme_fewest=f"{__name__}:Fewest"), pytest.raises(InvalidInput, match=r"is none of .*acme-fewest"):
        PlacementStudy(policies=("acme-least",), seeds=(0,)).check()
