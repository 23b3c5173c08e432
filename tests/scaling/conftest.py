"""The simulators are compiled once, outside of any test's time limit."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if not find_spec("numba"):
    collect_ignore_glob = ["test_simulator*.py"]  # without the extra `sim` only what the operator uses is tested


@pytest.fixture(scope="session", autouse=True)
def compiled_service() -> None:
    if not find_spec("numba"):
        return
    from tiphys_models.scaling.registry import make_agent
    from tiphys_models.scaling.sim.episode import play
    from tiphys_models.scaling.sim.load import draw_load
    from tiphys_models.scaling.sim.requests import RequestServices
    from tiphys_models.scaling.sim.scenario import FIBONACCI, ServiceScenario
    from tiphys_models.scaling.sim.shapes import make_shape

    load = draw_load(make_shape("constant", "train", 0, 60), FIBONACCI, requests=True)
    for scenario in (ServiceScenario(), ServiceScenario("per-pod", per_pod_queues=True)):
        for plant in (None, RequestServices):
            play(make_agent("rule"), [load], scenario, *([plant] if plant else []))
