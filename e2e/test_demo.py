"""`tiphys demo` as a user starts it: real processes from the first to the last, and none left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.hostile import HOSTILE, all_cases, pod
from tiphys_cli.kube.api import ApiClient
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.placement.calls import PROFILE_QUANTITIES
from tiphys_models.placement.registry import PolicyName
from tiphys_testbed.cluster.options import LocalOptions
from tiphys_testbed.cluster.processes import Process, ProcessTable
from tiphys_testbed.demo.functions import BY_NAME
from tiphys_testbed.demo.lanes import CONTROL, Lane, pod_manifest

pytestmark = [pytest.mark.needs_local, pytest.mark.slow, pytest.mark.timeout(300)]
READY_S = 120.0
END_S = 60.0
NAME = f"e2e-demo-{os.getpid()}"
RUN_DIR = LocalOptions(name=NAME).run_dir
SHADOW = "faasrank-shadow"
LANES = (CONTROL, "faasrank", "least-connections", SHADOW)
BASE = (sys.executable, "-m", "tiphys_cli", "demo", "--name", NAME)


class Demo:
    """A demo under way, with what it has said so far."""

    def __init__(self, out: Path, *arguments: str) -> None:
        self.log = out / "demo.log"
        with self.log.open("wb") as log:
            command = [*BASE, "--quick", "--nodes", "6", "--out", str(out), *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def wait_for(self, text: str, deadline_s: float = READY_S) -> None:
        wait(lambda: text in self.said() or self.process.poll() is not None, deadline_s, f"{text!r} in:\n{self.said()}")
        assert text in self.said(), self.said()

    def end(self, deadline_s: float = END_S) -> int:
        return self.process.wait(deadline_s)


def wait(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    end_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.2)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    started: list[Demo] = []

    def begin(*arguments: str) -> Demo:
        demo = Demo(tmp_path, *arguments)
        started.append(demo)
        return demo

    yield begin
    for demo in started:
        if demo.process.poll() is None:
            demo.process.send_signal(signal.SIGINT)
            demo.end()


def running() -> list[Process]:
    return [process for process in ProcessTable(RUN_DIR).all() if process.alive()]


def assert_nothing_left(processes: list[Process]) -> None:
    wait(lambda: not RUN_DIR.exists(), END_S, f"{RUN_DIR} gone")
    assert [process.name for process in processes if process.alive()] == []


def test_every_call_is_done_and_the_policies_decide(start: Callable[..., Demo], tmp_path: Path) -> None:
    demo = start("--policies", "faasrank,least-connections", "--shadow", "faasrank", "--seeds", "1,2", "--markdown")
    assert demo.end(240) == 0, demo.said()
    assert_nothing_left([])
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["problems"] == []
    assert [(row["lane"], row["seed"]) for row in result["rows"]] == [(lane, seed) for seed in (1, 2) for lane in LANES]
    for row in result["rows"]:
        assert row["done"] == row["calls"] > 20
        assert 0 < row["cold_starts"] <= row["calls"]
        if row["lane"] != CONTROL:
            said = row["decisions"]
            asked = row["calls"] - said["not_asked"]  # six small nodes fill up: a pod with one candidate is asked about by nobody
            assert asked > 0.6 * row["calls"]
            assert said["scored"] >= 0.95 * asked
            compared = said["best_bound"] + said["best_other"]
            if row["lane"] == SHADOW:  # asked about every call, and not obeyed: its agreement with the default plugins is told
                assert compared >= 0.95 * asked
                assert said["best_bound"] < compared
            else:
                assert said["best_bound"] >= 0.95 * compared
    pools = {(call["lane"], call["node"].rpartition("-")[0]) for call in result["calls"]}
    assert pools == {(lane, lane) for lane in LANES}  # everybody stayed in their own pool
    by_seed = {seed: [call["due_s"] for call in result["calls"] if (call["lane"], call["seed"]) == (CONTROL, seed)] for seed in (1, 2)}
    assert by_seed[1] != by_seed[2]
    assert f"| {CONTROL} |" in demo.said()
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_an_interrupt_in_the_middle_ends_every_process(start: Callable[..., Demo]) -> None:
    demo = start("--policies", "warm-first")
    demo.wait_for("s of calls, seed 20")
    processes = running()
    assert {"etcd", "kube-apiserver", "tiphys-extender", "tiphys-operator", "tiphys-scheduler", "prometheus"} <= {p.name for p in processes}
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 130, demo.said()
    assert "Traceback" not in demo.said()
    assert_nothing_left(processes)


def test_a_demo_that_is_killed_leaves_nothing_behind(start: Callable[..., Demo]) -> None:
    demo = start("--policies", "warm-first")
    demo.wait_for("s of calls, seed 20")
    processes = running()
    demo.process.kill()
    demo.end()
    assert_nothing_left(processes)


def test_a_kept_demo_runs_pods_explains_them_and_ends_when_told(start: Callable[..., Demo]) -> None:
    demo = start("--policies", "faasrank", "--keep")
    demo.wait_for("ends it.")
    kubeconfig = RUN_DIR / "admin.kubeconfig"
    assert f"export KUBECONFIG={kubeconfig}" in demo.said()
    processes = running()
    lane = Lane("faasrank", PolicyName.FAASRANK)
    pods = f"/api/v1/namespaces/{lane.namespace}/pods"
    with ApiClient.from_kubeconfig(kubeconfig) as api:
        made = pod_manifest(lane, "mine", BY_NAME["eg"], "by-hand")
        api.create(pods, made)
        wait(lambda: api.get(f"{pods}/mine")["status"]["phase"] == "Succeeded", 30, "the pod has run")
        other = made | {"metadata": {"name": "server", "labels": {"app": "server"}}}
        assert FUNCTION_LABEL not in other["metadata"]["labels"]
        api.create(pods, other)
        wait(lambda: api.get(f"{pods}/server")["status"]["phase"] == "Running", 30, "a pod without a function runs on")
        api.delete(f"{pods}/server", gracePeriodSeconds=30)
        wait(lambda: not any(pod["metadata"]["name"] == "server" for pod in api.items(pods)), 30, "a deleted pod goes")
    url = next(line.split()[-1] for line in demo.said().splitlines() if "tiphys explain" in line)
    asked = [sys.executable, "-m", "tiphys_cli", "explain", "pod/mine", "-n", lane.namespace, "--extender-url", url, "--json"]
    answer = subprocess.run(
        asked, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"KUBECONFIG": str(kubeconfig)}
    )
    assert answer.returncode == 0, answer.stderr
    decision = json.loads(answer.stdout)["decision"]
    assert (decision["policyName"], decision["outcome"]) == ("faasrank", "scored")
    # what the nodes' runtimes say of the function has come through Prometheus, and so has every reading of the best node
    eg = BY_NAME["eg"]
    assert decision["callProfile"] == pytest.approx(
        dict(zip(PROFILE_QUANTITIES, (eg.warm_s, eg.cold_s, eg.warm_work_core_s, eg.cold_work_core_s, eg.parallelism), strict=True))
    )
    assert None not in decision["features"][decision["would"]].values()
    stopped = subprocess.run([*BASE, "--stop"], capture_output=True, text=True, timeout=END_S + 30, check=False)
    assert stopped.returncode == 0, stopped.stderr
    assert demo.end() == 0, demo.said()
    assert_nothing_left(processes)


def test_hostile_objects_stop_nothing_of_a_kept_demo(start: Callable[..., Demo]) -> None:
    demo = start("--policies", "faasrank", "--keep")
    demo.wait_for("ends it.")
    processes = {process.name: process for process in running()}
    lane = Lane("faasrank", PolicyName.FAASRANK)
    pods = f"/api/v1/namespaces/{lane.namespace}/pods"
    with ApiClient.from_kubeconfig(RUN_DIR / "admin.kubeconfig") as api:
        api.create("/api/v1/namespaces", {"metadata": {"name": HOSTILE}})
        wait(lambda: bool(api.items(f"/api/v1/namespaces/{HOSTILE}/serviceaccounts")), 30, "a ServiceAccount for the hostile pods")
        node = next(name for name in sorted(n["metadata"]["name"] for n in api.items("/api/v1/nodes")) if name.startswith("faasrank"))
        for quantity in ("1e400", "1e20"):
            api.create(f"/api/v1/namespaces/{HOSTILE}/pods", pod(f"on-a-node-{quantity}", {"cpu": quantity}, nodeName=node))
        taken = sum(not case.send(api) for case in all_cases())
        assert taken >= 25  # a demo has no plane's tenants, whose statuses could be spoilt
        for number in range(4):
            api.create(pods, pod_manifest(lane, f"mine-{number}", BY_NAME["eg"], "by-hand"))
            wait(lambda number=number: api.get(f"{pods}/mine-{number}")["status"]["phase"] == "Succeeded", 30, "a pod has run")  # type: ignore[misc]
            time.sleep(3)
    assert demo.process.poll() is None, demo.said()
    assert {process.name: process for process in running()} == processes
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() in (0, 130), demo.said()
    assert_nothing_left(list(processes.values()))


def test_a_wrong_choice_is_refused_in_one_clear_line() -> None:
    for arguments, message in (
        (["--policies", "best"], "least-connections"),
        (["--seeds", "a"], "whole numbers"),
        (["--stop"], "no demo"),
        (["--chart", "/nonexistent"], "no Helm chart in /nonexistent"),
    ):
        answer = subprocess.run([*BASE, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert answer.returncode in (1, 2)
        assert message in " ".join(answer.stderr.replace("│", " ").split())
        assert "Traceback" not in answer.stderr
