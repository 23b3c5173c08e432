import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from tiphys_models.api.routing import Router, route_of
from tiphys_models.api.scheduling_policy import parse_spec
from tiphys_models.base.errors import Unavailable
from tiphys_models.base.facts import FUNCTION_LABEL, node_facts, pod_facts
from tiphys_models.placement.candidates import PlacementRequest
from tiphys_models.placement.encoder import encode
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.snapshot import read_snapshot
from tiphys_models.placement.state import PlacementState
from tiphys_testbed.bench.binds import middle_rate
from tiphys_testbed.bench.extender import check_answer
from tiphys_testbed.bench.scheduler import SchedulerPlan
from tiphys_testbed.bench.service import ScrapedMetrics, cpu_s, machine_cpu_s, maps_library, peak_mib
from tiphys_testbed.bench.workload import (
    FUNCTIONS,
    MANY_FUNCTIONS,
    Cell,
    PrioritizeBodies,
    pod_manifest,
    policy_object,
    snapshot_of,
    write_inputs,
)
from tiphys_testbed.cluster.nodes import fleet


def cell(nodes: int = 12, pods: int = 40, seed: int = 0) -> Cell:
    return Cell(tuple(fleet(nodes, bare=True)), pods, seed)


def test_one_seed_makes_one_cluster_and_another_seed_another() -> None:
    assert snapshot_of(cell(), 0.0) == snapshot_of(cell(), 0.0)
    assert snapshot_of(cell(), 0.0) != snapshot_of(cell(seed=1), 0.0)


def test_the_snapshot_survives_its_file_and_decides_with_the_written_model(tmp_path: Path) -> None:
    path, models, digest = write_inputs(cell(), tmp_path)
    read = read_snapshot(path)
    assert len(read.nodes) == 12
    assert len(read.pods) == 40
    assert all(len(row) == len(NODE_READINGS) for row in read.readings.values())
    network = load_network(models / "untrained.json")
    assert network.card.sha256 == digest
    state = PlacementState()
    for node in read.nodes:
        state.put_node(node_facts(node))
    for pod in read.pods:
        state.put_pod(pod_facts(pod), 0.0)
    state.put_readings(list(read.readings), np.array(list(read.readings.values()), np.float32), np.full(12, 1.0))
    request = PlacementRequest("u", "functions", "functions/function-00", 10, 2**25)
    scores = network(encode(state.view(request, state.nodes.rows(list(read.readings)))))
    assert len({round(float(score), 6) for score in scores}) == 12, "an untrained network must still tell the made-up nodes apart"
    assert all(math.isfinite(score) for score in scores)


def test_the_policy_object_is_valid_and_routes_the_pods() -> None:
    policy = policy_object()
    policy["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert parse_spec(policy).model_name == "untrained"
    pod = pod_manifest("p", FUNCTIONS[0])
    assert Router([route_of(policy)]).route(pod["metadata"]["namespace"], pod["metadata"]["labels"]) is not None


def test_bodies_have_a_new_pod_each_all_functions_and_a_window_that_rotates() -> None:
    names = [f"n{index:03d}" for index in range(200)]
    bodies = PrioritizeBodies(names, 50)
    decoded = [orjson.loads(bodies.body(index)) for index in range(130)]
    assert len({args["Pod"]["metadata"]["uid"] for args in decoded}) == 130
    assert {pod_facts(args["Pod"]).function for args in decoded} == {f"functions/{name}" for name in FUNCTIONS}
    assert all(len(set(args["NodeNames"])) == 50 and args["Nodes"] is None for args in decoded)
    assert len({args["NodeNames"][0] for args in decoded}) > 60
    assert set().union(*(args["NodeNames"] for args in decoded)) == set(names)
    assert 2000 <= len(orjson.dumps(decoded[0]["Pod"])) <= 2600


def test_an_answer_is_ranked_neutral_or_refused() -> None:
    def answer(*scores: object) -> bytes:
        return orjson.dumps([{"Host": f"n{index}", "Score": score} for index, score in enumerate(scores)])

    assert check_answer(answer(10, 9, 0), 3)
    assert not check_answer(answer(5, 5, 5), 3)
    for wrong in (answer(10, 10, 1), answer(11, 1, 1), answer(10, 9), answer(10, 2.0, 1), answer(9, 8, 7)):
        with pytest.raises(Unavailable):
            check_answer(wrong, 3)


def test_the_middle_rate_leaves_out_slow_ends() -> None:
    steady = [index * 0.01 for index in range(100)]
    assert middle_rate(steady) == pytest.approx(100)
    slow_ends = [time - 5 * (index < 10) + 5 * (index >= 90) for index, time in enumerate(steady)]
    assert middle_rate(slow_ends) == pytest.approx(100)
    with pytest.raises(Unavailable, match="too few"):
        middle_rate([1.0])


def test_metrics_are_summed_over_series_that_have_the_labels() -> None:
    text = (
        '# TYPE a counter\na_total{x="1",y="q\\"uote"} 2.0\na_total{x="1",y="2"} 3\na_total{x="2",y="2"} 5\nb 1e3\nc_bucket{le="+Inf"} 7\n'
    )
    metrics = ScrapedMetrics.parse(text)
    assert metrics.total("a_total", x="1") == 5
    assert metrics.total("a_total") == 10
    assert metrics.total("b") == 1000
    assert metrics.total("c_bucket", le="+Inf") == 7
    assert metrics.total("missing") == 0


def test_a_process_is_measured_through_proc() -> None:
    import os

    pid = os.getpid()
    before, machine = cpu_s(pid), machine_cpu_s()
    total = 0
    while cpu_s(pid) - before < 0.05:
        total += sum(range(1000))
    assert machine_cpu_s() >= machine
    assert 10 < peak_mib(pid) < 10_000
    assert maps_library(pid, "libc")
    assert not maps_library(pid, "no-such-library")
    with pytest.raises(Unavailable, match="gone"):
        cpu_s(2**22 + 1)


def test_the_flooder_floods_until_its_input_ends_and_says_how_much() -> None:
    with socket.create_server(("127.0.0.1", 0)) as victim:
        port = victim.getsockname()[1]
        command = [sys.executable, "-m", "tiphys_testbed.bench.flooder", "127.0.0.1", str(port), "0"]
        flooder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        victim.settimeout(10)
        for _ in range(20):
            victim.accept()[0].close()
        said, _ = flooder.communicate(b"", timeout=10)
    counted = json.loads(said)
    assert flooder.returncode == 0
    assert counted["opened"] >= 20
    assert counted["seconds"] > 0


def test_the_estimator_is_asked_beside_calls_of_many_functions() -> None:
    asked = snapshot_of(Cell(cell().nodes, 200, 0, MANY_FUNCTIONS), 0.0, policy="estimator")
    assert asked.policies[0]["spec"] == {"mode": "Active", "policy": "estimator"}
    assert len({pod["metadata"]["labels"][FUNCTION_LABEL] for pod in asked.pods}) == len(MANY_FUNCTIONS) == len(asked.profiles)


def test_bounds_on_pods_a_second_are_those_of_the_policy_that_decides() -> None:
    bounds = {policy: [s.target for s in SchedulerPlan(policy=policy).settings()] for policy in ("faasrank", "estimator")}
    assert bounds == {"faasrank": [0.8, 0.45, 0.6], "estimator": [0.9, 0.8, 0.9]}
    assert [s.target for s in SchedulerPlan(nodes=(700,), policy="estimator").settings()] == [None, None]
