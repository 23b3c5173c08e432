"""Real HPA and real VPA on real kubelets: they see what pods use, and act on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.test_real_nodes import IMAGE, cgroup, limits
from tiphys_cli.kube.api import ApiClient
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.kind import peers
from tiphys_testbed.kind.autoscalers import HPA_PATH, VPA_PATH, horizontal_pod_autoscaler, vertical_pod_autoscaler
from tiphys_testbed.kind.cluster import KindCluster
from tiphys_testbed.tools.programs import VPA_PARTS

pytestmark = [
    pytest.mark.needs_kubelet,
    pytest.mark.needs_kind,
    pytest.mark.programs("metrics-server", *(f"vpa-{part}" for part in VPA_PARTS)),
    pytest.mark.timeout(600),
]

BUSY = "while True: pass"
REACTION_S = 180.0
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


@pytest.fixture(scope="module")
def kind(cluster: Cluster) -> KindCluster:
    assert isinstance(cluster, KindCluster)
    return cluster


@pytest.fixture(scope="module", autouse=True)
def metrics(kind: KindCluster) -> Iterator[None]:
    try:
        peers.install_metrics_server(kind)
        yield
    finally:
        peers.remove_metrics_server(kind)


@pytest.fixture
def vpa(kind: KindCluster) -> Iterator[None]:
    try:
        peers.install_vpa(kind)
        yield
    finally:
        peers.remove_vpa(kind)


def deploy(api: ApiClient, namespace: str, cpu: str) -> None:
    """A Deployment `web` of one pod that uses all of its CPU."""
    container = {"name": "main", "image": IMAGE, "command": ["python", "-c", BUSY], "resources": limits(cpu, "48Mi")}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    api.create(DEPLOYMENTS.format(namespace), {"metadata": {"name": "web"}, "spec": spec})
    wait_until(lambda: running(api, namespace), 60, "the pod runs", poll_s=0.5)


def running(api: ApiClient, namespace: str) -> list[dict[str, Any]]:
    return [pod for pod in api.items(f"/api/v1/namespaces/{namespace}/pods") if pod["status"].get("phase") == "Running"]


def test_kubectl_top_answers_for_every_node(kind: KindCluster, api: ApiClient) -> None:
    lines = [line.split() for line in kind.kubectl("top", "nodes", "--no-headers").splitlines()]
    assert {line[0] for line in lines} == {node["metadata"]["name"] for node in api.items("/api/v1/nodes")}
    assert all(int(line[1].removesuffix("m")) > 0 for line in lines)


def test_hpa_adds_pods_to_a_busy_deployment(api: ApiClient, namespace: str) -> None:
    deploy(api, namespace, "100m")
    api.create(HPA_PATH.format(namespace), horizontal_pod_autoscaler("web", "web", replicas=(1, 2)))
    wait_until(lambda: len(running(api, namespace)) == 2, REACTION_S, "HPA has scaled to two pods", poll_s=1.0)


def test_vpa_recommends_and_resizes_in_place(kind: KindCluster, api: ApiClient, namespace: str, vpa: None) -> None:
    deploy(api, namespace, "50m")
    (before,) = running(api, namespace)
    name = before["metadata"]["name"]
    api.create(VPA_PATH.format(namespace), vertical_pod_autoscaler("web", "web", cpu=("50m", "200m")))
    assert peers.wait_for_recommendation(api, namespace, "web").keys() == {"main"}
    wait_until(lambda: cgroup(kind, namespace, name)[0] > 0.05, REACTION_S, "the kernel grants more CPU", poll_s=2.0)
    (after,) = running(api, namespace)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0

    def told() -> bool:
        return "InPlaceResizedByVPA" in {event["reason"] for event in api.items(f"/api/v1/namespaces/{namespace}/events")}

    wait_until(told, 30, "VPA has said that it was it", poll_s=0.5)
