"""The simulator is compiled once a session, outside of any test's time limit (a minute or two the first time, then cached)."""

from __future__ import annotations

import pytest

pytest.importorskip("numba")


@pytest.fixture(scope="session", autouse=True)
def compiled_simulator() -> None:
    from tests.sim.small import small_workload
    from tiphys_models.policies.rules import LeastConnections
    from tiphys_models.sim.episode import simulate
    from tiphys_models.sim.scenario import Scenario

    simulate(small_workload(5), LeastConnections(), Scenario(nodes=2))
