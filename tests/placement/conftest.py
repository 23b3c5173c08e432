"""The simulator is compiled once a session, outside of any test's time limit (a minute or two the first time, then cached)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

if not all(find_spec(name) for name in ("numba", "scipy")):
    collect_ignore_glob = ["test_*.py"]  # without the extra `sim` there is nothing to test


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile once, before any test's time limit begins, what tests of this directory play."""
    here = Path(__file__).parent
    if session.config.option.collectonly or not any(here in item.path.parents for item in session.items):
        return
    from tests.placement.small import small_workload
    from tiphys_models.placement.rules import LeastConnections
    from tiphys_models.placement.sim.episode import simulate
    from tiphys_models.placement.sim.kube.play import ESTIMATOR, play_kube
    from tiphys_models.placement.sim.kube.scenario import STANDARD
    from tiphys_models.placement.sim.lives.episode import MOST, play
    from tiphys_models.placement.sim.lives.world import LivesWorld, make_pods
    from tiphys_models.placement.sim.scenario import FaasScenario
    from tiphys_models.placement.sim.workloads import first_calls, make_workload

    simulate(small_workload(5), LeastConnections(), FaasScenario(nodes=2))
    play_kube(first_calls(make_workload("M1", "train", 0), 2.0), ESTIMATOR, STANDARD)
    world = LivesWorld("compiled", cv=0.2, jobs=2, job_cores=1.0)
    play(world, make_pods(world, "train", 0), MOST)
