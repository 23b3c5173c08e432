"""Everything that runs before the first call comes: a control plane, machines, Prometheus, and the services as the chart sets them up."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tiphys_models.placement.sim.functions import FUNCTIONS, FunctionModel
from tiphys_models.placement.sim.invoker import InvokerRules
from tiphys_testbed.cluster.exporter import Exporter
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import MachineType, create_nodes
from tiphys_testbed.cluster.options import LocalOptions, PrometheusOptions
from tiphys_testbed.cluster.prometheus import wait_for_series
from tiphys_testbed.cluster.readiness import until_served
from tiphys_testbed.demo.chart import NAMESPACE, RenderedChart, find_chart, render_chart
from tiphys_testbed.demo.fleet import RuntimeFleet
from tiphys_testbed.demo.holding import say_ready, wait_until_held
from tiphys_testbed.demo.lanes import MACHINE, NODES_PER_LANE, Lane, lane_nodes, namespace_manifest, policy_manifest
from tiphys_testbed.demo.services import SCRAPE_WINDOW_S, Services, start_services, wait_until_deciding
from tiphys_testbed.tools.toolbox import Toolbox

READY_DEADLINE_S = 90.0
OPENER_SETTINGS = {"GATES_ENABLED": "true"}
"""By which extender and operator let pods go; both services call it the same."""
_NODE_GRACE_S = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Scene:
    """What is set up: lanes with a pool of machines each, what the machines are like, and how often they are read."""

    name: str
    """The name of the local cluster: two of different names can run side by side."""
    lanes: tuple[Lane, ...]
    nodes_per_lane: int = NODES_PER_LANE
    machine: MachineType = MACHINE
    rules: InvokerRules = field(default_factory=InvokerRules)
    functions: tuple[FunctionModel, ...] = FUNCTIONS
    scrape_s: float = 1.0
    chart: Path | None = None
    chart_values: tuple[str, ...] = ()
    waiting: bool = True
    """Whether admission holds pods that may wait, and extender and operator let them go."""

    @property
    def window_s(self) -> int:
        """Span over which the extender takes rates: it holds two scrapes at least."""
        return max(SCRAPE_WINDOW_S, math.ceil(2.2 * self.scrape_s))

    @property
    def settle_s(self) -> float:
        """Before a replay: the readings' window fills with an idle cluster."""
        return self.window_s + 2.0


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs."""

    cluster: LocalCluster
    lanes: tuple[Lane, ...]
    fleet: RuntimeFleet
    services: Services
    prometheus_url: str


@contextmanager
def staged(scene: Scene, toolbox: Toolbox) -> Iterator[Stage]:
    """Start all processes, hand them out, and end them whatever happens."""
    chart = find_chart(scene.chart)
    programs = toolbox.ensure(["helm", "prometheus"])
    # Our nodes renew no lease and need no kwok: the demo plays their kubelets, because their pods are ready after a start
    # that takes its time, and not at once.
    with LocalCluster(LocalOptions(name=scene.name, kwok=False, node_monitor_grace_s=_NODE_GRACE_S), toolbox) as cluster:
        values = (*scene.chart_values, *(["gates.enabled=true"] if scene.waiting else []))
        installation = render_chart(programs["helm"], chart, cluster.version, values)
        fleet = _furnish(cluster, scene, installation)
        with Exporter(fleet.counters) as exporter:
            with toolbox.progress.step("Prometheus, operator, extender and our scheduler") as step:
                url = cluster.start_prometheus(PrometheusOptions(node_urls=exporter.node_urls(), scrape_interval_s=scene.scrape_s))
                wait_for_series(url, "node_load1", len(exporter.nodes), READY_DEADLINE_S)
                step.detail("waiting until they are ready")
                extender = {"SCRAPE_WINDOW_S": str(scene.window_s), **(OPENER_SETTINGS if scene.waiting else {})}
                operator = dict(OPENER_SETTINGS) if scene.waiting else {}
                services = start_services(cluster, installation, url, READY_DEADLINE_S, operator, extender)
                wait_until_deciding(cluster, services, list(scene.lanes), READY_DEADLINE_S)
                if held := [lane for lane in scene.lanes if lane.may_wait] if scene.waiting else []:
                    step.detail("waiting until admission holds pods that may wait")
                    say_ready(cluster)
                    wait_until_held(cluster, held[0], READY_DEADLINE_S)
            yield Stage(cluster, scene.lanes, fleet, services, url)


def _furnish(cluster: LocalCluster, scene: Scene, installation: RenderedChart) -> RuntimeFleet:
    """Machines, namespaces, what of the chart is not a process, and a policy for every lane that has one."""
    lanes = scene.lanes
    with cluster.toolbox.progress.step(f"{scene.nodes_per_lane * len(lanes)} nodes, roles and policies") as step:
        pulled = scene.rules.image_mib == 0.0
        nodes = {lane.namespace: lane_nodes(lane, scene.nodes_per_lane, scene.machine, pulled=pulled) for lane in lanes}
        create_nodes(cluster.api, [node for pool in nodes.values() for node in pool])
        fleet = RuntimeFleet(nodes, time.monotonic(), scene.rules, scene.functions)
        step.detail("applying the chart's custom resources and roles")
        for namespace in [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, *map(namespace_manifest, lanes)]:
            cluster.api.create("/api/v1/namespaces", namespace)
        cluster.apply(installation.manifest())
        _wait_for_policies_api(cluster)
        for policy in [policy_manifest(lane) for lane in lanes if lane.policy is not None]:
            cluster.api.create(f"/apis/{policy['apiVersion']}/namespaces/{policy['metadata']['namespace']}/schedulingpolicies", policy)
        for lane in lanes:
            _wait_for_account(cluster, lane.namespace)
    return fleet


def _wait_for_policies_api(cluster: LocalCluster) -> None:
    """A new custom resource takes a moment until it is served."""
    until_served(lambda: cluster.api.get("/apis/tiphys.io/v1alpha1/schedulingpolicies"), "SchedulingPolicy is not served", READY_DEADLINE_S)


def _wait_for_account(cluster: LocalCluster, namespace: str) -> None:
    """No pod is admitted before the controllers have made its namespace's ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    until_served(lambda: cluster.api.get(path), f"namespace {namespace} has no ServiceAccount", READY_DEADLINE_S)
