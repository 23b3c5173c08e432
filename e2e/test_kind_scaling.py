"""A ScalingPolicy on real kubelets: a jump of real load reaches the cgroup within a window, restarts nothing, and adds pods."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from e2e.conftest import wait_until
from e2e.test_real_nodes import HOME, IMAGE, cgroup, run_helm
from tiphys_cli.kube.api import ApiClient
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.kind import measuring, monitoring
from tiphys_testbed.kind.cluster import KindCluster
from tiphys_testbed.kind.scaling.objects import NAME, PATH, POLICIES, scaling_policy, service
from tiphys_testbed.kind.scaling.plan import ComparisonPlan, LimitSizes, Start
from tiphys_testbed.workloads.load import play

pytestmark = [
    pytest.mark.needs_kubelet,
    pytest.mark.needs_kind,
    pytest.mark.programs("node_exporter", "kube-state-metrics", "prometheus@kubernetes", "helm"),
    pytest.mark.timeout(420),
]

CPU_S = 0.0025
"""About what a request takes: for the load alone, the policy measures it."""
PLAN = ComparisonPlan(sizes=LimitSizes(most_m=300))
"""The jump takes more than one pod may have."""
REACTION_S = 60.0
CALM_S, JUMP_S = 45.0, 60.0


@pytest.fixture(scope="module", autouse=True)
def monitored(cluster: Cluster, api: ApiClient) -> Iterator[None]:
    """The release reads a Prometheus that finds pods; taken away again unless it was there before."""
    assert isinstance(cluster, KindCluster)
    if "tiphys-operator" not in {item["metadata"]["name"] for item in api.items(f"/apis/apps/v1/namespaces/{HOME}/deployments")}:
        pytest.skip(f"no release in {HOME}: run manifests/kind-quickstart.sh, or make kind-e2e")
    there = monitoring.NAMESPACE in {item["metadata"]["name"] for item in api.items("/api/v1/namespaces")}
    if not there:
        measuring.install(cluster, worker_cpus=None)
    yield
    if not there:
        run_helm(cluster, "rollback", "tiphys", "1", "--wait", "--timeout", "2m")
        cluster.kubectl("delete", "namespace", monitoring.NAMESPACE, "--timeout=90s")


class Scene:
    """fibonacci in a namespace."""

    def __init__(self, cluster: Cluster, api: ApiClient, namespace: str) -> None:
        self.cluster, self.api, self.namespace = cluster, api, namespace

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in found if not pod["metadata"].get("deletionTimestamp")}

    def ready(self) -> int:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{NAME}"
        return int((self.api.get(path).get("status") or {}).get("readyReplicas") or 0)

    def decision(self) -> dict[str, Any]:
        status = self.api.get(f"{POLICIES.format(self.namespace)}/{NAME}").get("status") or {}
        return dict(status.get("lastDecision") or {})

    def addresses(self) -> list[tuple[str, int]]:
        port = self.api.get(f"/api/v1/namespaces/{self.namespace}/services/{NAME}")["spec"]["ports"][0]["nodePort"]
        nodes = self.api.items("/api/v1/nodes")
        return [(a["address"], port) for node in nodes for a in node["status"]["addresses"] if a["type"] == "InternalIP"]


@contextmanager
def loaded(addresses: list[tuple[str, int]], *phases: tuple[float, float]) -> Iterator[None]:
    """Cores of work for so many seconds, one phase after the other, open loop; played to its end."""
    due, at_s = [], 0.0
    for cores, seconds in phases:
        due += [at_s + number * CPU_S / cores for number in range(round(seconds * cores / CPU_S))]
        at_s += seconds
    thread = threading.Thread(target=lambda: asyncio.run(play(due, addresses, PATH)), name="load", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(at_s + 30)


@pytest.fixture
def scene(cluster: Cluster, api: ApiClient, namespace: str) -> Scene:
    made = Scene(cluster, api, namespace)
    cluster.apply(yaml.safe_dump_all(service(IMAGE, Start(1, 100))), namespace)
    wait_until(lambda: made.ready() == 1, 90, "fibonacci is ready", poll_s=0.5)
    api.create(POLICIES.format(namespace), scaling_policy(PLAN, "rule"))
    return made


def test_a_jump_of_load_reaches_the_cgroup_in_place_within_a_window_of_being_seen_and_adds_pods(cluster: Cluster, scene: Scene) -> None:
    (first,) = scene.pods()
    with loaded(scene.addresses(), (0.06, CALM_S), (0.45, JUMP_S)):
        wait_until(lambda: scene.decision().get("phase") == "Done", CALM_S, "the policy has measured and acts", poll_s=0.3)
        before, _ = cgroup(cluster, scene.namespace, first)
        seen: dict[int, dict[str, Any]] = {}

        def grown() -> bool:
            decision = scene.decision()
            seen[decision["number"]] = decision
            return bool(decision["applied"]["cpuMilli"] > 1200 * before and decision["phase"] == "Done")

        wait_until(grown, CALM_S + REACTION_S, "the policy has given the pod more CPU", poll_s=0.3)
        # the kernel's file, not what anybody says of it
        wait_until(lambda: cgroup(cluster, scene.namespace, first)[0] > 1.2 * before, 30, "the cgroup's file has changed", poll_s=0.3)
        wait_until(lambda: scene.ready() > 1, REACTION_S, "there are more pods", poll_s=0.5)
        restarts = [status["restartCount"] for pod in scene.pods().values() for status in pod["status"].get("containerStatuses") or ()]
    assert restarts == [0] * len(restarts)
    assert first in scene.pods(), "resized, not replaced"
    # a look between windows raises it; else one window may have seen only the jump's beginning
    calm = 0.06 / CPU_S * PLAN.window_s
    jumped = [number for number, decision in seen.items() if decision.get("window", {}).get("requests", 0) > 1.5 * calm]
    assert not jumped or max(seen) <= min(jumped) + 1, json.dumps(list(seen.values()))
