"""A fresh control plane with a real Karpenter for one billed run, and the lane's scheduler with or without our extender."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from tiphys_cli.kube.errors import ClusterError
from tiphys_models.api.crd import render
from tiphys_models.api.resources import RESOURCES
from tiphys_testbed.bench.bill_worlds import NAMESPACE, Lane, World, node_pool, scheduler_config, scheduling_policy
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import LocalOptions, SchedulerOptions
from tiphys_testbed.cluster.ports import free_ports
from tiphys_testbed.cluster.processes import RANK_CLIENT, Process, ProcessTable
from tiphys_testbed.cluster.readiness import until_served, wait_healthy
from tiphys_testbed.tools.programs import CONTROL_PLANE
from tiphys_testbed.tools.sources import module_source
from tiphys_testbed.tools.toolbox import Toolbox

PROGRAMS = (*CONTROL_PLANE, "etcd", "kwok")
CRDS = (
    "pkg/apis/crds/karpenter.sh_nodepools.yaml",
    "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
    "kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
)
_READY_S = 60.0
_RESERVATION_S = 10.0
KARPENTER_SETTINGS: Mapping[str, str] = {
    "DISABLE_LEADER_ELECTION": "true",
    "LOG_LEVEL": "info",
    "CPU_REQUESTS": "1000",
}


@dataclass(frozen=True, slots=True)
class Plane:
    """What runs."""

    cluster: LocalCluster
    karpenter: Process
    extender: Extender | None
    world: World

    def open_pool(self) -> None:
        """Let Karpenter make nodes from now on."""
        for thing in node_pool(self.world):
            path = f"/apis/{thing['apiVersion']}/{thing['kind'].lower()}{'es' if thing['kind'].endswith('s') else 's'}"
            _created(self.cluster, path, thing)

    def dead(self) -> list[str]:
        """Names of processes that have ended."""
        return [process.name for process in self.cluster.processes.all() if not process.alive()]


def programs_digest(toolbox: Toolbox, world: World) -> str:
    """sha256 of the programs' places in the cache, whose names hold all that decides the binaries."""
    return sha256("/".join(toolbox.path(name).parent.name for name in (*PROGRAMS, world.program)).encode()).hexdigest()


@contextmanager
def plane(name: str, world: World, lane: Lane, toolbox: Toolbox) -> Iterator[Plane]:
    """The plane, ready for pods of namespace `bill`. Never used twice: Karpenter remembers."""
    stage = Path(str(files("tiphys_testbed.bench") / "stages" / "run-time.yaml"))
    options = LocalOptions(name=name, default_scheduler=False, stages=(stage,))
    with LocalCluster(options, toolbox) as cluster:
        for resource in RESOURCES:
            _create_crd(cluster, yaml.safe_load(render(of=resource)))
        source = module_source(toolbox, world.program)
        for file in CRDS:
            _create_crd(cluster, yaml.safe_load((source / file).read_text(encoding="utf-8")))
        cluster.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        extender = _extender(cluster, world) if lane.policy else None
        config = scheduler_config(lane, options.run_dir / "scheduler.kubeconfig", extender.url if extender is not None else None)
        cluster.start_scheduler(SchedulerOptions(config_text=config))
        karpenter = _karpenter(cluster, world)
        if extender is not None:
            path = f"/apis/tiphys.io/v1alpha1/namespaces/{NAMESPACE}/schedulingpolicies"
            _created(cluster, path, scheduling_policy(lane.policy))
            _wait_until_obeyed(extender, lane.policy)
        until_served(lambda: cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"), "namespace", _READY_S)
        yield Plane(cluster, karpenter, extender, world)


def _create_crd(cluster: LocalCluster, body: dict[str, Any]) -> None:
    cluster.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)


def _created(cluster: LocalCluster, path: str, body: dict[str, Any]) -> None:
    until_served(lambda: cluster.api.create(path, body), f"{body['kind']} {body['metadata']['name']}", _READY_S)


def _karpenter(cluster: LocalCluster, world: World) -> Process:
    """Karpenter by its environment alone; it listens on all interfaces and cannot be told otherwise."""
    metrics, health = free_ports(2)
    environment = {
        **KARPENTER_SETTINGS,
        **world.karpenter_settings,
        "KUBECONFIG": str(cluster.kubeconfig),
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
    }
    table = ProcessTable(cluster.processes.run_dir, environment)
    program = str(cluster.toolbox.path(world.program))
    process = table.start("karpenter", [program], RANK_CLIENT, f"http://127.0.0.1:{health}")
    wait_healthy(process, "/readyz", None, _READY_S)
    return process


def _extender(cluster: LocalCluster, world: World) -> Extender:
    """Our extender as it ships, its times divided like Karpenter's."""
    options = ExtenderOptions(
        kubeconfig=cluster.kubeconfig,
        settings={"RESERVATION_TTL_S": f"{_RESERVATION_S / world.factor:.3f}"},
    )
    extender = Extender.start(cluster.processes, options, hastened=None if world.factor == 1 else float(world.factor))
    extender.wait_ready()
    return extender


def _wait_until_obeyed(extender: Extender, policy: str) -> None:
    end_s = time.monotonic() + _READY_S
    while time.monotonic() < end_s:
        routes = extender.explain("/v1/state")[1]["routes"]
        if any((route["policy"], route["policyName"]) == (f"{NAMESPACE}/lane", policy) for route in routes):
            return
        time.sleep(0.1)
    raise ClusterError(f"the extender does not obey {policy}")
