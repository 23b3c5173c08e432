"""The operator's half of `tiphys bench scale`: the real process in a cluster of 150,000 pods, from its first list to a relist.

Run twice through the same story: as it is, for memory; and under `scale_probe`, for the longest callback by the processor time of the
loop's thread. The story: first list; statuses of all policies; windows; Jobs run and finish, a batch at a time; a fifth of the pods vanish
unseen while all history is forgotten, so that everything is listed again.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tiphys_models.api.base import API_VERSION, GROUP, VERSION
from tiphys_models.base.errors import Unavailable
from tiphys_models.lab.report import Claim, Row
from tiphys_testbed.bench.scale_api import Api
from tiphys_testbed.bench.scale_objects import NAMESPACES, Fleet
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import peak_mib
from tiphys_testbed.cluster.ports import free_ports

PEAK_MIB, CALLBACK_MS = 256.0, 50.0
CHART_LIMIT_MIB = 320.0
"""`operator.resources.limits.memory` of the chart; a test holds it to values.yaml."""
_POLL_S, _DEADLINE_S = 0.5, 600.0
_HASH = "7d9c5b6f4d"
_FULL = Fleet(nodes=5_000, workloads=5_000, pods=150_000, jobs=5_000)


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """How large the cluster is, and how much happens in it."""

    fleet: Fleet = _FULL
    scheduling_policies: int = 100
    scaling_policies: int = 200
    batch: int = 5_000

    @classmethod
    def quickly(cls) -> OperatorPlan:
        """The same story in a small cluster."""
        return cls(Fleet(nodes=100, workloads=50, pods=1_000, jobs=500), scheduling_policies=10, scaling_policies=10, batch=250)


@dataclass(slots=True)
class OperatorRun:
    """A running operator process."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @classmethod
    @contextlib.contextmanager
    def started(cls, kubeconfig: Path, directory: Path, settings: dict[str, str], probe: Path | None = None) -> Iterator[OperatorRun]:
        """Started, and ended with the block."""
        port = free_ports(1)[0]
        given = {
            "NAMESPACE": "tiphys-system", "IDENTITY": "scale", "STATUS_HOST": "127.0.0.1", "STATUS_PORT": str(port),
            "STATUS_REQUESTS_PER_SECOND": "0",
            # how long an API server may take that shares its cores with us is not what is measured
            "LEASE_DURATION_S": "120", "RENEW_S": "100", "RETRY_S": "5",
        } | settings  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIPHYS_")}
        environment |= {f"TIPHYS_OPERATOR_{name}": value for name, value in given.items()} | {"KUBECONFIG": str(kubeconfig)}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}  # the last as in the chart
        measured = [] if probe is None else ["tiphys_testbed.bench.scale_probe", str(probe)]
        log = directory / "operator.log"
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, "-m", *measured, "tiphys_operator"], env=environment, stdout=out, stderr=out)
        try:
            yield cls(process, port, log)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def metrics(self) -> dict[str, float]:
        """All samples by name and labels; empty before it serves."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{.*?\})?) (\S+)$", answer.read().decode(), re.MULTILINE)}
        return {}

    def until(self, reached: Callable[[dict[str, float]], bool], what: str) -> dict[str, float]:
        """Wait for the metrics to say so."""
        end_s, found = time.monotonic() + _DEADLINE_S, dict[str, float]()
        while time.monotonic() < end_s:
            if self.process.poll() is not None:
                raise Unavailable(f"the operator ended; the end of its log:\n{self.log.read_text()[-2000:]}")
            if (found := self.metrics()) and reached(found):
                return found
            time.sleep(_POLL_S)
        raise Unavailable(f"{what}: not within {_DEADLINE_S:.0f} s; the end of its log:\n{self.log.read_text()[-2000:]}")

    def cpu_s(self) -> float:
        """Processor time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def requests() -> Iterator[str]:
    """The address of a Prometheus that tells of a steady load."""
    process = subprocess.Popen([sys.executable, "-m", "tiphys_testbed.bench.scale_requests"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline() if process.stdout is not None else b""
        yield str(orjson.loads(line)["url"])
    finally:
        process.kill()
        process.wait()


def queries(url: str) -> int:
    """How many it was asked."""
    with urllib.request.urlopen(f"{url}/-/stats") as answer:  # noqa: S310 - our own address
        return int(orjson.loads(answer.read())["queries"])


def run(plan: OperatorPlan, tell: Callable[[str], None]) -> tuple[Row, list[Claim]]:
    """Both runs; one row and its claims."""
    fleet = plan.fleet
    policies = plan.scheduling_policies + plan.scaling_policies
    row: Row = {"part": "operator", "nodes": fleet.nodes, "pods": fleet.pods, "jobs": fleet.jobs, "policies": policies}
    with Api.start(fleet) as api, requests() as prometheus:
        for path, objects in _objects(plan).items():
            api.put(path, *objects)
        tell("as it is")
        row |= _played(api, prometheus, plan, tell, probed=False)
        tell("each callback measured")
        row |= _played(api, prometheus, plan, lambda text: None, probed=True)
    return row, [
        Claim("scale-operator-peak-mib", row["peak_mib"], PEAK_MIB, "<="),
        Claim("scale-operator-peak-share-of-chart-limit", round(row["peak_mib"] / CHART_LIMIT_MIB, 3), 0.8, "<="),
        Claim("scale-operator-longest-callback-cpu-ms", row["callback_cpu_ms"], CALLBACK_MS, "<="),
        Claim("scale-operator-relisted", float(row["relisted"]), 1.0, ">="),
    ]


def _played(api: Api, prometheus: str, plan: OperatorPlan, tell: Callable[[str], None], *, probed: bool) -> Row:
    with scratch("scale-operator") as table:
        directory = Path(table.run_dir)
        report = directory / "callbacks.json" if probed else None
        settings = {"PROMETHEUS_URL": prometheus, "RESYNC_S": "30"}
        with OperatorRun.started(api.kubeconfig(directory), directory, settings, report) as operator:
            operator.until(bool, "metrics")
            if probed:
                os.kill(operator.process.pid, signal.SIGUSR1)
            row = _story(api, operator, plan, tell)
            if report is None:
                return row
            time.sleep(1.0)
            found = orjson.loads(report.read_bytes())
    return {
        "callback_cpu_ms": round(found["cpu_ms"], 1), "callback_what": found["what"],
        "callback_wall_ms": round(found["wall_ms"], 1), "callbacks_over_20_ms": found["over_20_ms"],
    }  # fmt: skip


def _story(api: Api, operator: OperatorRun, plan: OperatorPlan, tell: Callable[[str], None]) -> Row:
    fleet, pid = plan.fleet, operator.process.pid

    def settled(pods: int) -> None:
        operator.until(lambda found: found.get('tiphys_operator_pods_kept{loop="cluster"}') == pods, f"{pods} pods are known")

    settled(fleet.pods)
    row: Row = {"first_list_peak_mib": round(peak_mib(pid), 1)}
    tell(f"{fleet.pods:,} pods are listed: {row['first_list_peak_mib']} MiB")
    before_s, cpu_s = time.monotonic(), operator.cpu_s()
    wanted = plan.scaling_policies * 3
    operator.until(lambda found: _decisions(found) >= wanted, f"{wanted} windows")
    row["cores"] = round((operator.cpu_s() - cpu_s) / (time.monotonic() - before_s), 2)
    row["windows_peak_mib"] = round(peak_mib(pid), 1)
    for first in range(0, fleet.jobs, plan.batch):
        count = min(plan.batch, fleet.jobs - first)
        api.pods("jobs", first, count, "Running")
        settled(fleet.pods + count)
        api.pods("jobs", first, count, "Succeeded")
        settled(fleet.pods)
    row["jobs_peak_mib"] = round(peak_mib(pid), 1)
    tell(f"{fleet.jobs:,} Jobs have finished: {row['jobs_peak_mib']} MiB")
    gone, lists = fleet.pods // 5, _lists(api)
    api.vanish("pods", 0, gone)
    settled(fleet.pods - gone)
    row["relisted"] = _lists(api) > lists
    row["peak_mib"] = round(peak_mib(pid), 1)
    tell(f"listed again: {row['peak_mib']} MiB")
    api.pods("pods", 0, gone, "Running")
    settled(fleet.pods)
    return row


def _decisions(found: dict[str, float]) -> float:
    return sum(value for name, value in found.items() if name.startswith("tiphys_operator_scaling_decisions_total"))


def _lists(api: Api) -> int:
    return int(api.stats()["requests"].get("GET /api/v1/pods", 0))


def _objects(plan: OperatorPlan) -> dict[str, list[dict[str, Any]]]:
    replicas = plan.fleet.pods // max(plan.fleet.workloads, 1)
    scheduling = [
        custom("SchedulingPolicy", f"app-{n:03d}", n, {"policy": "warm-first", "selector": {"matchLabels": {"app": f"workload-{n:05d}"}}})
        for n in range(plan.scheduling_policies)
    ]
    return {
        f"/apis/{GROUP}/{VERSION}/schedulingpolicies": scheduling,
        f"/apis/{GROUP}/{VERSION}/scalingpolicies": [scaling_policy(n) for n in range(plan.scaling_policies)],
        "/apis/apps/v1/deployments": [deployment(n, replicas) for n in range(plan.scaling_policies)],
    }


def custom(kind: str, name: str, workload: int, spec: dict[str, Any]) -> dict[str, Any]:
    """One of our own objects, in the namespace of a workload."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "namespace": namespace(workload)}, "spec": spec}


def namespace(workload: int) -> str:
    """Where a workload runs."""
    return f"team-{workload % NAMESPACES:02d}"


def scaling_policy(workload: int, mode: str = "Recommend") -> dict[str, Any]:
    """One for a workload, with windows of 15 s."""
    spec = {
        "targetRef": {"kind": "Deployment", "name": f"workload-{workload:05d}"}, "mode": mode, "intervalSeconds": 15,
        "objective": {"latencyMilliseconds": 400}, "horizontal": {"minReplicas": 1, "maxReplicas": 100},
        "agent": {"requestCpuMicroseconds": 2000},
    }  # fmt: skip
    return custom("ScalingPolicy", f"workload-{workload:05d}", workload, spec)


def deployment(workload: int, replicas: int) -> dict[str, Any]:
    """What owns the pods of a workload."""
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}}
    labels = {"app": f"workload-{workload:05d}"}
    container = {"name": "main", "image": "registry.example.com/shop/web:1.0", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"workload-{workload:05d}", "namespace": namespace(workload), "labels": labels, "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
        "status": {"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas},
    }
