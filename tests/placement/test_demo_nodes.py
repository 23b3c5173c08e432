"""A node of the demo, read by Prometheus, beside a node of the simulator that models are trained in."""

from __future__ import annotations

import pytest

from tests.testbed.test_cluster_simulation import readings
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.schema import COLUMN, NODE_READINGS
from tiphys_models.placement.sim.episode import simulate
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.invoker import CallStep, InvokerRules
from tiphys_models.placement.sim.reference import Reference
from tiphys_models.placement.sim.scenario import FaasScenario
from tiphys_models.placement.sim.workloads import first_calls, make_workload
from tiphys_testbed.demo.fleet import RuntimeFleet
from tiphys_testbed.demo.lanes import lane_nodes, make_lanes

pytestmark = pytest.mark.timeout(60, func_only=True)

TOLERANCE = {"cpu_load_avg": 0.01, "cpu_idle": 0.02}
"""/proc/loadavg has two decimals; time in interrupts is idle time to the simulator."""


@pytest.mark.parametrize("reuse", [True, False])
def test_calls_on_the_demos_nodes_end_when_the_compiled_simulator_says(reuse: bool) -> None:
    calls = make_workload("M2", "train", 0)
    simulated = simulate(calls, WarmFirst(), FaasScenario(reuse=reuse))
    pool = lane_nodes(make_lanes()[0], 10)
    fleet = RuntimeFleet({"lane": pool}, 0.0, InvokerRules(reuse=reuse))
    events = []
    for k, at_s in enumerate(calls.arrival_s.tolist()):
        events += fleet.advance(at_s)
        events += fleet.submit(pool[simulated.node[k]].name, str(k), FUNCTIONS[calls.function[k]], at_s, float(calls.noise[k]))
    while fleet.next_event_s < 600:
        events += fleet.advance(fleet.next_event_s)
    ends = {int(event.call): event for event in events if event.step is CallStep.DONE}
    assert [ends[k].at_s for k in range(len(calls))] == pytest.approx(simulated.finish_s.tolist(), abs=1e-6)
    assert [ends[k].begun_s for k in range(len(calls))] == pytest.approx(simulated.start_s.tolist(), abs=1e-6)
    assert [ends[k].cold for k in range(len(calls))] == simulated.cold.tolist()


def test_the_same_calls_give_the_same_readings_every_second() -> None:
    calls = first_calls(make_workload("M2", "train", 0), 20.0)
    twin = Reference(calls, WarmFirst(), FaasScenario(nodes=1))
    spec = lane_nodes(make_lanes()[0], 1)[0]
    fleet = RuntimeFleet({"lane": [spec]}, 0.0)
    counters = fleet.counters[spec.name]
    for second in range(1, 21):
        before = readings(counters)
        for k in [k for k, at_s in enumerate(calls.arrival_s) if second - 1 < at_s <= second]:
            function, at_s, noise = twin.models[calls.function[k]], float(calls.arrival_s[k]), float(calls.noise[k])
            twin.nodes[0].invoker.submit(str(k), function, at_s, noise)
            fleet.submit(spec.name, str(k), function, at_s, noise)
        twin._advance(float(second))
        fleet.publish(float(second))
        simulated = twin._sample().readings[0].tolist()
        after = readings(counters)
        # the simulator takes time in interrupts from nobody; on a node it comes out of what is idle, and a full one has none
        simulated[COLUMN["cpu_softirq"]] = min(simulated[COLUMN["cpu_softirq"]], simulated[COLUMN["cpu_idle"]])
        for feature, expected in zip(NODE_READINGS, simulated, strict=True):
            name, _, labels = feature.source.partition("{")
            series = "cpu_" + labels.split('"')[1] if name == "node_cpu_seconds_total" else name
            measured = sum(after[key] - (before[key] if feature.kind == "rate" else 0.0) for key in after if key.startswith(series))
            tolerance = TOLERANCE.get(feature.name, 1e-3)
            assert measured == pytest.approx(expected, rel=tolerance, abs=tolerance), (second, feature.name)
