"""The cloud simulator is compiled once, outside of any test's time limit."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if not find_spec("numba"):
    collect_ignore_glob = ["test_simulator*.py"]  # without the extra `sim` only what the operator uses is tested


@pytest.fixture(scope="session", autouse=True)
def compiled_cloud() -> None:
    if find_spec("numba"):
        from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS
        from tiphys_models.selection.planners.heuristics import OnePerHost
        from tiphys_models.selection.sim.choosers import CandidateOracle
        from tiphys_models.selection.sim.episode import Planners, run
        from tiphys_models.selection.sim.workloads import make_workload

        run(
            make_workload("stationary", "validation", 0, 5),
            Planners({"one-per-host": OnePerHost()}),
            CandidateOracle(DEFAULT, DIVISORS["stationary"]),
        )
