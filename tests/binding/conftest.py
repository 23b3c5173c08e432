"""The binding simulator is compiled once, outside of any test's time limit."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session", autouse=True)
def compiled_binding() -> None:
    if find_spec("numba"):
        from tiphys_models.sim.binding.episode import STATIC_ACTIONS, Fixed, play
        from tiphys_models.sim.binding.scenario import Scenario
        from tiphys_models.sim.binding.topology import make_topology
        from tiphys_models.sim.binding.workloads import make_streams

        for scenario in (Scenario(), Scenario(events=True)):
            play(
                make_topology("full-edge").world,
                make_streams("validation", 0, 20.0, horizon_s=10.0),
                Fixed(STATIC_ACTIONS[0]),
                scenario,
                10.0,
            )
