"""Workloads played on a local Ray cluster give what they give here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.placement.small import small_workload
from tiphys_models.placement.sim.scenario import FaasScenario

pytest.importorskip("torch")
pytest.importorskip("ray")

from tiphys_models.placement.train.rolling import roller
from tiphys_models.placement.train.rollouts import Task, blind, play_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_plays_the_same_workloads_as_this_process() -> None:
    tasks = [Task(small_workload(40, seed), FaasScenario(nodes=3)) for seed in range(3)]
    here = play_here(blind(26), tasks, costs=True, seed=4)
    with roller(ray=True) as rolls:
        there = rolls(blind(26), tasks, costs=True, seed=4)
    for a, b in zip(here, there, strict=True):
        np.testing.assert_array_equal(a.chosen, b.chosen)
        np.testing.assert_allclose(a.costs, b.costs)
