"""The simulator is compiled once a session, outside of any test's time limit (a minute or two the first time, then cached)."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if not all(find_spec(name) for name in ("numba", "scipy")):
    collect_ignore_glob = ["test_*.py"]  # without the extra `sim` there is nothing to test


@pytest.fixture(scope="session", autouse=True)
def compiled_simulator() -> None:
    from tests.placement.small import small_workload
    from tiphys_models.placement.rules import LeastConnections
    from tiphys_models.placement.sim.episode import simulate
    from tiphys_models.placement.sim.lives.episode import MOST, play
    from tiphys_models.placement.sim.lives.world import LivesWorld, make_pods
    from tiphys_models.placement.sim.scenario import FaasScenario

    simulate(small_workload(5), LeastConnections(), FaasScenario(nodes=2))
    world = LivesWorld("compiled", cv=0.2, jobs=2, job_cores=1.0)
    play(world, make_pods(world, "train", 0), MOST)
