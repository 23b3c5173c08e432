"""The binding simulator is compiled once, outside of any test's time limit."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session", autouse=True)
def compiled_binding() -> None:
    if find_spec("numba"):
        from tiphys_models.streams.sim.episode import STATIC_ACTIONS, FixedAction, play
        from tiphys_models.streams.sim.scenario import StreamScenario
        from tiphys_models.streams.sim.topology import make_topology
        from tiphys_models.streams.sim.workloads import make_streams

        for scenario in (StreamScenario(), StreamScenario(events=True)):
            play(
                make_topology("full-edge").world,
                make_streams("validation", 0, 20.0, horizon_s=10.0),
                FixedAction(STATIC_ACTIONS[0]),
                scenario,
                10.0,
            )
