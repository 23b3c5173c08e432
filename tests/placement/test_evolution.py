"""The search for a network over the estimator."""

from __future__ import annotations

import numpy as np
import pytest

from tiphys_models.placement.residual import NODE_INPUTS, WAIT_INPUTS, flat, heads_of
from tiphys_models.placement.sim.kube.play import ESTIMATOR, play_kube
from tiphys_models.placement.sim.kube.scenario import DEAR_STARTS, STANDARD, KubeScenario
from tiphys_models.placement.sim.workloads import make_workload
from tiphys_models.placement.train.evolution import EvolutionSettings, player_of, searched

pytestmark = pytest.mark.timeout(300, func_only=True)  # compilation comes on top

SHORT = EvolutionSettings(units=2, steps=1, pairs=1, workloads=1)


def test_one_seed_finds_the_same_weights_twice_and_another_seed_others() -> None:
    told: list[str] = []
    weights, episodes = searched(3, SHORT, told.append)
    again, _ = searched(3, SHORT, lambda _: None)
    np.testing.assert_array_equal(weights, again)
    assert (weights != searched(4, SHORT, lambda _: None)[0]).any()
    assert (episodes, len(told)) == (14, 1)


@pytest.mark.parametrize("world", [STANDARD, DEAR_STARTS], ids=lambda world: world.name)
def test_weights_that_say_nothing_play_the_estimator(world: KubeScenario) -> None:
    workload = make_workload("M2", "train", 5)
    nothing = np.zeros(len(NODE_INPUTS) + len(WAIT_INPUTS) + 3 * (len(NODE_INPUTS) + len(WAIT_INPUTS) + 4))
    assert len(flat(heads_of(nothing))) == len(nothing)
    mine, estimators = (play_kube(workload, player, world) for player in (player_of(nothing), ESTIMATOR))
    np.testing.assert_array_equal(mine.calls.node, estimators.calls.node)
    np.testing.assert_array_equal(mine.calls.finish_s, estimators.calls.finish_s)
