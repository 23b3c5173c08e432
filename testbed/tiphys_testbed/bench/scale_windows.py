"""A thousand ScalingPolicies with windows of 15 s on one core: windows on time, and what that asks of the API server and of Prometheus.

Prometheus is made up at the transport and tells of a steady load. The API server is real (the local control plane) unless it is a quick
run, which takes the made-up one and fewer policies. The operator process is bound to one core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiphys_models.api.base import API_VERSION, GROUP, VERSION
from tiphys_models.lab.report import Claim, Row
from tiphys_testbed.bench.scale_api import Api
from tiphys_testbed.bench.scale_objects import NAMESPACES, Fleet
from tiphys_testbed.bench.scale_operator import OperatorRun, deployment, namespace, queries, requests, scaling_policy
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import peak_mib
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions

ON_TIME = 0.99
WINDOW_S = 15.0
WRITES_UNTIL_STEADY = 7.0
"""All of them news: the first status, and then the one step down that the load asks for once the first wishes are five minutes old. Of a
step people hear the intent, what was done, the new size, that a pod ends and is gone, and a minute later the figures of the others."""
CALM_WINDOWS = 6
"""Figures that moved are written after a minute."""
_REPLICAS, _NODES = 2, 20
_POLICIES = f"/apis/{GROUP}/{VERSION}/scalingpolicies"


@dataclass(frozen=True, slots=True)
class WindowsPlan:
    """How many policies, and for how many windows each is watched once all have begun."""

    policies: int = 1_000
    warm_windows: int = 24
    """After so many the wishes of the beginning are forgotten, and the load's one step is decided; what it leads to is waited for."""
    windows: int = 12
    real: bool = True

    @classmethod
    def quickly(cls) -> WindowsPlan:
        """A minute, against the made-up API server."""
        return cls(policies=50, warm_windows=1, windows=2, real=False)


def run(plan: WindowsPlan, tell: Callable[[str], None]) -> tuple[Row, list[Claim]]:
    """One row and its claims."""
    with scratch("scale-windows") as table, requests() as prometheus:
        directory = Path(table.run_dir)
        with _real(plan, directory) if plan.real else _made_up(plan, directory) as (kubeconfig, asked):
            settings = {"PROMETHEUS_URL": prometheus, "BINDING": "false"}
            with OperatorRun.started(kubeconfig, directory, settings) as operator:
                os.sched_setaffinity(operator.process.pid, {min(os.sched_getaffinity(0))})
                row = _measured(plan, operator, prometheus, asked, tell)
    claims = [
        Claim("scale-windows-on-time", row["on_time"], ON_TIME, ">="),
        Claim("scale-windows-cores", row["cores"], 1.0, "<="),
        Claim("scale-windows-prometheus-queries-per-window", row["queries_per_window"], 3.0, "<="),
    ]
    if plan.real:  # a short run still tells what is new in the beginning
        claims += [
            Claim("scale-windows-status-writes-per-window", row["writes_per_window"], 0.01, "<="),
            Claim("scale-windows-status-writes-until-steady-per-policy", row["writes_until_steady"], WRITES_UNTIL_STEADY, "<="),
        ]
    return row, claims


def _measured(plan: WindowsPlan, operator: OperatorRun, prometheus: str, asked: Callable[[], float], tell: Callable[[str], None]) -> Row:
    operator.until(lambda found: decided(found) >= plan.policies * (1 + plan.warm_windows), "every policy's first windows")
    if plan.real:
        _steady(operator, tell)
    until_steady = _written(operator.metrics()) / plan.policies
    tell(f"{plan.policies} policies decide; measuring {plan.windows} windows of each")
    before, began_s, cpu_s, first, server = operator.metrics(), time.monotonic(), operator.cpu_s(), queries(prometheus), asked()
    time.sleep(plan.windows * WINDOW_S)
    after, took_s = operator.metrics(), time.monotonic() - began_s
    windows = decided(after) - decided(before)
    wrote = _written(after) - _written(before)
    asked_s, questions = (asked() - server) / took_s, queries(prometheus) - first
    return {
        "part": "windows",
        "policies": plan.policies,
        "api_server": "local control plane" if plan.real else "made up",
        "on_time": round(min(windows / (plan.policies * took_s / WINDOW_S), 1.0), 4),
        "overdue": after.get("tiphys_operator_windows_overdue", 0.0),
        "cores": round((operator.cpu_s() - cpu_s) / took_s, 3),
        "peak_mib": round(peak_mib(operator.process.pid), 1),
        "queries_per_s": round(questions / took_s, 1),
        "queries_per_window": round(questions / max(windows, 1), 2),
        "api_requests_per_s": round(asked_s, 2),
        "writes_per_window": round(wrote / max(windows, 1), 4),
        "writes_until_steady": round(until_steady, 2),
    }


def _steady(operator: OperatorRun, tell: Callable[[str], None]) -> None:
    """Wait until no status has been written for so many windows.

    The step down after five minutes is news, and so is each pod's end. The controllers of a real API server take minutes for a thousand
    Deployments, at the twenty requests a second that they allow themselves.
    """
    began_s, changed_s, wrote = time.monotonic(), time.monotonic(), -1.0

    def calm(found: dict[str, float]) -> bool:
        nonlocal changed_s, wrote
        if _written(found) != wrote:
            changed_s, wrote = time.monotonic(), _written(found)
        return time.monotonic() - changed_s >= CALM_WINDOWS * WINDOW_S

    operator.until(calm, "a load that has nothing new to tell")
    tell(f"nothing new is written any more after another {changed_s - began_s:.0f} s")


def _written(found: dict[str, float]) -> float:
    return found.get('tiphys_operator_writes_total{kind="status"}', 0.0)


def decided(found: dict[str, float]) -> float:
    """Windows that came to a decision, or to none for want of something."""
    return sum(value for name, value in found.items() if name.startswith("tiphys_operator_scaling_decisions_total"))


@contextlib.contextmanager
def _made_up(plan: WindowsPlan, directory: Path) -> Iterator[tuple[Path, Callable[[], float]]]:
    fleet = Fleet(nodes=max(plan.policies // 20, 1), workloads=plan.policies, pods=plan.policies * _REPLICAS, jobs=0)
    with Api.start(fleet) as api:
        api.put("/apis/apps/v1/deployments", *(deployment(n, _REPLICAS) for n in range(plan.policies)))
        api.put(_POLICIES, *(scaling_policy(n, "Active") for n in range(plan.policies)))
        yield api.kubeconfig(directory), lambda: float(sum(api.stats()["requests"].values()))


@contextlib.contextmanager
def _real(plan: WindowsPlan, directory: Path) -> Iterator[tuple[Path, Callable[[], float]]]:
    """The local control plane with the kinds installed, simulated nodes, and Deployments of small pods on them."""
    with LocalCluster(LocalOptions(name="scale")) as cluster:
        for manifest in sorted((Path(__file__).parents[3] / "manifests" / "crds").glob("*.yaml")):
            cluster.apply(manifest.read_text(encoding="utf-8"))
        create_nodes(cluster.api, fleet(_NODES))
        for number in range(min(NAMESPACES, plan.policies)):
            cluster.api.create("/api/v1/namespaces", {"metadata": {"name": namespace(number)}})
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "tiphys-system"}})
        for number in range(plan.policies):
            cluster.api.create(f"/apis/apps/v1/namespaces/{namespace(number)}/deployments", _with_pods(number))
            policy = scaling_policy(number, "Active") | {"apiVersion": API_VERSION}
            cluster.api.create(f"/apis/{GROUP}/{VERSION}/namespaces/{namespace(number)}/scalingpolicies", policy)
        yield cluster.kubeconfig, lambda: _asked(cluster)


def _with_pods(number: int) -> dict[str, Any]:
    made = deployment(number, _REPLICAS)
    labels = made["spec"]["selector"]["matchLabels"]
    made["spec"]["template"]["metadata"] = {"labels": labels}
    return {part: made[part] for part in ("apiVersion", "kind", "metadata", "spec")}


def _asked(cluster: LocalCluster) -> float:
    """Requests of the operator that the API server has answered; watches count when they end."""
    text = cluster.api.raw("GET", "/metrics")[1].decode()
    lines = (line for line in text.splitlines() if line.startswith("apiserver_request_total{"))
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'verb="WATCH"' not in line)
