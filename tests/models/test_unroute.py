from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from tiphys_models.kube import unroute as unrouting
from tiphys_models.kube.access import ApiAccess
from tiphys_models.kube.client import KubeClient
from tiphys_models.kube.unroute import ObjectRef, unroute
from tiphys_models.placement.gate import GATE


class FakeCluster:
    """Objects by path; what is not there is 404, as an API that is not served is."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.denied: set[str] = set()
        self.deleted: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        if any(part in request.path for part in self.denied):
            return web.json_response({"reason": "Forbidden", "message": "no"}, status=403)
        if request.method == "DELETE" and request.path in self.objects:
            self.deleted.append(request.path)
            return web.json_response(self.objects.pop(request.path))
        if request.method == "GET" and request.path in self.objects:
            return web.json_response(self.objects[request.path])
        resource = request.path.rsplit("/", 1)[-1]
        if request.method == "PATCH" and request.path.startswith("/api/v1/namespaces/"):
            (pod,) = [pod for pod in self.lists["pods"] if pod["metadata"]["name"] == resource]
            pod["spec"]["schedulingGates"] = []
            return web.json_response(pod)
        if request.method == "GET" and resource in (*RESOURCES, "pods"):
            return web.json_response({"metadata": {}, "items": self.lists.get(resource, [])})
        return web.json_response({"reason": "NotFound", "message": "no"}, status=404)


RESOURCES = ("deployments", "statefulsets", "daemonsets", "replicasets", "jobs", "cronjobs")
ADMISSION = "/apis/admissionregistration.k8s.io"


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", cluster.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with KubeClient(ApiAccess(f"http://127.0.0.1:{runner.addresses[0][1]}", None)) as opened:
        yield opened
    await runner.cleanup()


def workload(name: str, scheduler: str = "tiphys", owned: bool = False, cron: bool = False) -> dict[str, Any]:
    template = {"template": {"spec": {"schedulerName": scheduler}}}
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if owned:
        metadata["ownerReferences"] = [{"kind": "Owner", "name": "o"}]
    return {"metadata": metadata, "spec": {"jobTemplate": {"spec": template}} if cron else template}


async def test_nothing_to_do_is_a_clean_report(client: KubeClient) -> None:
    report = await unroute(client)
    assert report.clean
    assert report.removed == ()


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
async def test_the_binding_goes_before_the_policy_in_any_served_version(client: KubeClient, cluster: FakeCluster, version: str) -> None:
    binding = f"{ADMISSION}/{version}/mutatingadmissionpolicybindings/tiphys-routing"
    policy = f"{ADMISSION}/{version}/mutatingadmissionpolicies/tiphys-routing"
    cluster.objects = {policy: {}, binding: {}}
    report = await unroute(client)
    assert cluster.deleted == [binding, policy]
    assert [str(ref) for ref in report.removed] == [
        "MutatingAdmissionPolicyBinding tiphys-routing",
        "MutatingAdmissionPolicy tiphys-routing",
    ]


async def test_a_dry_run_removes_nothing(client: KubeClient, cluster: FakeCluster) -> None:
    cluster.objects = {f"{ADMISSION}/v1/mutatingadmissionpolicies/tiphys-routing": {}}
    report = await unroute(client, dry_run=True)
    assert len(report.removed) == 1
    assert cluster.deleted == []


async def test_workloads_and_pods_that_name_the_scheduler_are_listed_once(client: KubeClient, cluster: FakeCluster) -> None:
    cluster.lists = {
        "deployments": [workload("d"), workload("other", "default-scheduler")],
        "replicasets": [workload("d-1", owned=True), workload("bare")],
        "cronjobs": [workload("c", cron=True)],
        "jobs": [workload("c-1", owned=True)],
        "pods": [{"metadata": {"name": "p", "namespace": "default"}}],
    }
    report = await unroute(client)
    assert report.workloads == (
        ObjectRef("CronJob", "default", "c"),
        ObjectRef("Deployment", "default", "d"),
        ObjectRef("ReplicaSet", "default", "bare"),
    )
    assert report.pending_pods == (ObjectRef("Pod", "default", "p"),)
    assert not report.clean


@pytest.mark.parametrize("denied", ["pods", "deployments", "cronjobs", "mutatingadmissionpolicies"])
async def test_what_may_not_be_done_is_reported_and_the_rest_goes_on(client: KubeClient, cluster: FakeCluster, denied: str) -> None:
    cluster.denied = {denied}
    cluster.lists = {"statefulsets": [workload("s")]}
    report = await unroute(client)
    listed_twice = denied == "pods"  # those that are held, and those that name the scheduler
    assert [denied in problem for problem in report.problems] == [True] * (2 if listed_twice or denied.startswith("mutating") else 1)
    assert [ref.name for ref in report.workloads] == ["s"]
    assert not report.clean


def held(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"schedulingGates": [{"name": GATE}]}}


async def test_who_is_held_is_let_go_after_the_policy_that_holds_is_gone(
    client: KubeClient, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unrouting, "_POLICY_LAG_S", 0.0)
    policies = [f"{ADMISSION}/v1/{kind}/mine" for kind in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies")]
    cluster.objects = {policy: {} for policy in policies}
    cluster.lists = {"pods": [held("p"), {"metadata": {"name": "free", "namespace": "default"}}]}
    report = await unroute(client, waiting_name="mine")
    assert cluster.deleted == policies
    assert report.opened == ("default/p",)
    assert cluster.lists["pods"][0]["spec"]["schedulingGates"] == []


async def test_a_dry_run_names_who_is_held_and_lets_nobody_go(client: KubeClient, cluster: FakeCluster) -> None:
    cluster.lists = {"pods": [held("p")]}
    report = await unroute(client, dry_run=True)
    assert report.opened == ("default/p",)
    assert cluster.lists["pods"][0]["spec"]["schedulingGates"] == [{"name": GATE}]


async def test_a_held_pod_that_cannot_be_let_go_is_a_problem_and_the_others_go(client: KubeClient, cluster: FakeCluster) -> None:
    cluster.lists = {"pods": [held("stuck"), held("p")]}
    cluster.denied = {"pods/stuck"}
    report = await unroute(client)
    assert report.opened == ("default/p",)
    assert ["Pod default/stuck is still held" in problem for problem in report.problems] == [True]
    assert not report.clean
