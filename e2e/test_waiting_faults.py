"""Pods that wait are let go in time, whoever dies: admission, extender and operator as the chart sets them up, killed one at a time and both."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from e2e.conftest import wait_until
from e2e.live import SCHEDULER, Inputs, Lane, make_inputs, nodes_of
from e2e.operators import OperatorProcess
from e2e.test_chart import need_routing
from e2e.test_waiting_pods import FUNCTIONS, OVERDUE_S, PROFILE, bound_within, make, opener, total
from e2e.waiting import REACTION_S, WaitingRelease, gates_of, pod, stays, waiting_release
from tiphys_models.placement.gate import GATE, OPENER_GRACE_S
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import delete_nodes
from tiphys_testbed.cluster.options import PrometheusOptions, SchedulerOptions
from tiphys_testbed.demo.openers import OPENERS

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

BOUND_S = 4
LATEST_S = BOUND_S + 5.0
"""Nobody waits longer, whoever has died."""
TOLD = {"GATES_ENABLED": "true", "GATES_LONGEST_WAIT_S": str(BOUND_S)}


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, 12, "openers")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


@pytest.fixture(scope="module")
def release(local: LocalCluster, inputs: Inputs) -> Iterator[WaitingRelease]:
    need_routing(local.api)
    assert inputs.nodes
    with waiting_release(local, {"gates": {"enabled": True, "longestWaitSeconds": BOUND_S}}) as made:
        yield made


@dataclass
class Scene:
    """An extender and an operator of one release, each under its own account, beside a stock scheduler."""

    release: WaitingRelease
    lane: Lane
    operator: OperatorProcess

    @property
    def pods(self) -> str:
        """Path of the pods of this test."""
        return f"/api/v1/namespaces/{self.lane.namespace}/pods"

    def kill_extender(self) -> None:
        """The first opener is gone, without a word."""
        self.lane.extender.process.kill()

    def kill_operator(self) -> None:
        """The second opener is gone, without a word."""
        assert self.operator.process is not None
        self.operator.process.kill()
        self.operator.process.wait(10)

    def keep_busy(self, *functions: str) -> None:
        """Each of these functions has one instance, which is expected back soon and never comes."""
        names = [make(self.lane, f"busy-{function}", function, gates=()) for function in functions]
        bound_within(self.lane, names, 20)
        time.sleep(OVERDUE_S)

    def wait(self, name: str, function: str = "f") -> None:
        """Make a pod that would start cold while a warm instance is busy: admission holds it, and the extender finds that waiting pays."""
        before = total(self.lane, "held_pods_total")
        make(self.lane, name, function, gates=())
        assert self.gates(name) == [GATE], "held by admission"
        wait_until(lambda: total(self.lane, "held_pods_total") > before, 3, "the extender has it wait", poll_s=0.05)

    def gates(self, name: str) -> list[str]:
        """The gates of a pod that stand."""
        return gates_of(self.lane.cluster.api.get(f"{self.pods}/{name}"))

    def let_go_within(self, name: str, made_s: float, deadline_s: float = LATEST_S) -> float:
        """How long after `made_s` the pod is let go; no later than the deadline."""
        wait_until(lambda: not self.gates(name), max(0.1, made_s + deadline_s - time.monotonic()), f"{name} is let go", poll_s=0.05)
        return time.monotonic() - made_s


@pytest.fixture
def scene(local: LocalCluster, release: WaitingRelease, inputs: Inputs, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    with started(local, release, inputs, namespace, tmp_path) as made:
        yield made


@contextmanager
def started(
    local: LocalCluster, release: WaitingRelease, inputs: Inputs, namespace: str, logs: Path, prometheus_url: str = ""
) -> Iterator[Scene]:
    """Both openers work, and the API server knows it."""
    options = ExtenderOptions(
        kubeconfig=local.kubeconfig_for("tiphys-extender", release.namespace),
        models_dir=inputs.models,
        readings_file=None if prometheus_url else readings_of(inputs, namespace),
        prometheus_url=prometheus_url,
        own_namespace=release.namespace,
        settings={"TOKEN_FILE": str(inputs.token_file), "READINGS_INTERVAL_S": "1", "DEADLINE_MS": "500", **TOLD},
    )
    with ExitStack() as stack:
        extender = Extender.start(local.processes, options)
        stack.callback(end, local, "extender")
        operator = OperatorProcess(
            local.kubeconfig_for("tiphys-operator", release.namespace), release.namespace, logs / "operator.log", settings=dict(TOLD)
        )
        operator.start()
        stack.callback(operator.stop)
        extender.wait_ready()
        scheduler = local.start_scheduler(
            SchedulerOptions(name="e2e-tiphys", scheduler_name=SCHEDULER, extender_url=extender.url, http_timeout_s=2.0)
        )
        stack.callback(end, local, "e2e-tiphys")
        lane = Lane(local, namespace, inputs, extender, scheduler)
        lane.policy(policy="warm-first-waits")
        wait_until(lambda: opener(lane)[0] == 200, 20, "the extender opens gates")
        wait_until(lambda: operator.get("/readyz")[0] == 200, 30, "the operator is ready")
        release.both_ready(namespace)
        stack.callback(release.forget_slices)
        yield Scene(release, lane, operator)


def end(local: LocalCluster, name: str) -> None:
    """End a process, unless it was killed."""
    if local.processes.find(name) is not None:
        local.stop_process(name)


def readings_of(inputs: Inputs, namespace: str) -> Path:
    """Readings in which functions have dear starts, and no runtime reports who is idle."""
    lines = [line for line in map(orjson.loads, inputs.readings.read_bytes().splitlines()) if not line.keys() & {"idle", "profile"}]
    profiles = [{"profile": {"function": f"{namespace}/{function}", **PROFILE}} for function in FUNCTIONS]
    path = inputs.readings.with_name(f"readings-{namespace}")
    path.write_bytes(b"\n".join(map(orjson.dumps, [*lines, *profiles])) + b"\n")
    return path


def test_with_the_operator_dead_the_extender_holds_the_bound(scene: Scene, record_testsuite_property: Callable[[str, Any], None]) -> None:
    scene.keep_busy("f")
    made_s = time.monotonic()
    scene.wait("waits")
    scene.kill_operator()
    took_s = scene.let_go_within("waits", made_s)
    assert took_s > BOUND_S - 1.5, "it did wait"
    assert total(scene.lane, "gates_opened_total", reason="bound") == 1
    record_testsuite_property("seconds a pod was held, bound 4, operator killed", round(took_s, 2))


def test_with_the_extender_dead_the_operator_lets_go_who_waits(scene: Scene, record_testsuite_property: Callable[[str, Any], None]) -> None:
    scene.keep_busy(*FUNCTIONS[1:])
    made_s = {}
    for function in FUNCTIONS[1:]:
        made_s[function] = time.monotonic()
        scene.wait(f"waits-{function}", function)
    scene.kill_extender()
    took_s = max(scene.let_go_within(f"waits-{function}", since_s) for function, since_s in made_s.items())
    assert took_s > BOUND_S + OPENER_GRACE_S - 2.0, "the operator does not come before its time"
    assert scene.operator.metric("tiphys_operator_gates_opened_total") == len(made_s)
    wait_until(lambda: scene.operator.metric("tiphys_operator_gated_pods") == 0, 5, "nobody is held")
    wait_until(lambda: all(nodes_of(scene.lane.cluster, scene.lane.namespace).values()), 30, "all are placed without the extender")
    record_testsuite_property("seconds until the last of four was let go, bound 4, extender killed", round(took_s, 2))


def test_with_both_dead_pods_stay_until_one_is_back_and_no_more_are_held(scene: Scene) -> None:
    release, place = scene.release, scene.lane.namespace
    scene.keep_busy("f")
    scene.wait("waits")
    scene.kill_extender()
    scene.kill_operator()
    # what the cluster does by its probes, some seconds later
    release.say_ready(dict.fromkeys(OPENERS, False))
    wait_until(lambda: not release.would_hold(place, pod("free")), REACTION_S, "nobody more is held")
    stays(lambda: scene.gates("waits") == [GATE], LATEST_S + 1, "nobody is there to let it go")
    began_s = time.monotonic()
    scene.operator.start()
    wait_until(lambda: not scene.gates("waits"), 30, "the operator is back and lets it go")
    assert scene.operator.metric("tiphys_operator_gates_opened_total") >= 1
    assert time.monotonic() - began_s < 30


def test_a_standby_lets_go_too(scene: Scene, tmp_path: Path) -> None:
    """The Lease is somebody else's, the leader is dead, and its Lease has not ended yet."""
    release = scene.release
    kubeconfig = scene.operator.kubeconfig
    scene.keep_busy("f")
    with OperatorProcess(kubeconfig, release.namespace, tmp_path / "standby.log", "operator-1", settings=dict(TOLD)) as standby:
        wait_until(lambda: standby.get("/readyz")[0] == 200, 30, "the standby is ready")
        made_s = time.monotonic()
        scene.wait("waits")
        scene.kill_extender()
        scene.kill_operator()
        scene.let_go_within("waits", made_s)
        wait_until(lambda: standby.metric("tiphys_operator_gates_opened_total") == 1, 5, "by the standby")


def test_with_prometheus_dead_nobody_waits_longer(
    local: LocalCluster, release: WaitingRelease, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    url = local.start_prometheus(PrometheusOptions(node_urls={}, name="prometheus-openers"))
    try:
        with started(local, release, inputs, namespace, tmp_path, prometheus_url=url) as scene:
            scene.keep_busy("f")
            local.process("prometheus-openers").kill()
            made_s = time.monotonic()
            for number in range(5):
                make(scene.lane, f"waits-{number}", "f", gates=())
            for number in range(5):
                scene.let_go_within(f"waits-{number}", made_s)
    finally:
        end(local, "prometheus-openers")


def test_before_an_uninstall_the_hook_lets_go_all_who_are_held(local: LocalCluster, namespace: str) -> None:
    """The hook's own module under the hook's own account, with nobody else there to open anything."""
    with waiting_release(local) as release:
        hook = [
            item
            for item in release.rendered.objects
            if item["metadata"]["name"] == "tiphys-unroute" and item["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
        ]
        local.apply(yaml.safe_dump_all(hook))
        release.both_ready(namespace)
        for number in range(3):
            local.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(f"h{number}"))
        command = release.rendered.pod_specs()["tiphys-unroute"]["containers"][0]["command"]
        environment = {"KUBECONFIG": str(local.kubeconfig_for("tiphys-unroute", release.namespace)), "PATH": "/usr/bin:/bin"}
        done = subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert [gates_of(one) for one in local.api.items(f"/api/v1/namespaces/{namespace}/pods")] == [[], [], []]
        assert "removed MutatingAdmissionPolicy tiphys-waiting" in done.stderr
        assert f"let go {namespace}/h0" in done.stderr
        local.kubectl("delete", "clusterrole,clusterrolebinding", "tiphys-unroute")
