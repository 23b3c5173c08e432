"""What only real kubelets show: containers, cgroups, probes, images, a node that goes away. The release is that of the quick start."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chart.rendering import CHART, helm

from e2e.conftest import exists, wait_until
from e2e.rights import client_of, who_is
from e2e.test_chart_release import write_certificates
from tiphys_cli.kube.api import STRATEGIC_MERGE_PATCH, ApiClient
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.kind.cluster import KindCluster

pytestmark = [pytest.mark.needs_kubelet, pytest.mark.timeout(300)]

HOME = "tiphys-system"
IMAGE = "ghcr.io/tiphys-io/tiphys-extender:0.1.0"
SLEEP = "import time; time.sleep(3600)"
POLICIES = "/apis/tiphys.io/v1alpha1/namespaces/{}/schedulingpolicies"
RUN_S = 60.0
NOT_READY_S = 120.0
"""The controllers give a silent kubelet 50 s."""


@pytest.fixture(scope="module", autouse=True)
def release(cluster: Cluster, api: ApiClient) -> Iterator[None]:
    """The installed release, its pods Ready; the last test uninstalls it, and then its namespace goes too."""
    path = f"/apis/apps/v1/namespaces/{HOME}/deployments"
    names = {item["metadata"]["name"] for item in api.items(path)}
    if not names >= {"tiphys-operator", "tiphys-scheduler"}:
        pytest.skip(f"no release in {HOME}: run manifests/kind-quickstart.sh, or make kind-e2e")
    wait_until(lambda: ready(api, HOME, "tiphys-operator") and ready(api, HOME, "tiphys-scheduler"), 90, "the release is ready")
    yield
    if not api.items(path):
        cluster.kubectl("delete", "namespace", HOME, "--timeout=90s")


@pytest.fixture
def active(api: ApiClient, namespace: str) -> str:
    """A namespace whose pods least-connections decides."""
    spec = {"mode": "Active", "policy": "least-connections"}
    body = {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "all"}, "spec": spec}
    path = POLICIES.format(namespace)
    api.create(path, body)
    # The operator speaks of the policy when the extender has told it that it obeys.
    wait_until(lambda: (api.get(f"{path}/all").get("status") or {}).get("conditions"), 30, "the operator has seen the policy")
    return namespace


@pytest.fixture
def worker(cluster: Cluster, api: ApiClient) -> Iterator[str]:
    """A worker that a test may break: not the one with the release, and mended afterwards."""
    busy = {pod["spec"].get("nodeName") for pod in api.items(f"/api/v1/namespaces/{HOME}/pods")}
    workers = sorted(set(worker_names(api)) - busy)
    if not workers:
        pytest.skip("pods of the release are on every worker")
    yield workers[0]
    if isinstance(cluster, KindCluster):
        cluster.on_node(workers[0], "systemctl", "start", "kubelet")
    cluster.kubectl("uncordon", workers[0])
    wait_until(lambda: workers[0] in worker_names(api), 90, f"{workers[0]} is back")


def worker_names(api: ApiClient) -> list[str]:
    """Nodes that take ordinary pods."""
    return [
        node["metadata"]["name"]
        for node in api.items("/api/v1/nodes")
        if not node["spec"].get("taints") and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    ]


def ready(api: ApiClient, namespace: str, deployment: str) -> bool:
    found = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}")
    status = found.get("status") or {}
    return bool(
        status.get("observedGeneration") == found["metadata"]["generation"] and status.get("readyReplicas") == found["spec"]["replicas"]
    )


def pod(name: str, code: str = SLEEP, image: str = IMAGE, **container: Any) -> dict[str, Any]:
    """A function's pod: Python of the project's own image."""
    main = {"name": "main", "image": image, "command": ["python", "-c", code], **container}
    spec = {"schedulerName": "tiphys", "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [main]}
    return {"metadata": {"name": name, "labels": {FUNCTION_LABEL: "f"}}, "spec": spec}


def limits(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def create(api: ApiClient, namespace: str, body: dict[str, Any]) -> None:
    api.create(f"/api/v1/namespaces/{namespace}/pods", body)


def look(api: ApiClient, namespace: str, name: str) -> dict[str, Any]:
    return api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


def wait_phase(api: ApiClient, namespace: str, names: list[str], phase: str, deadline_s: float = RUN_S) -> dict[str, str]:
    """Wait until all of them are in that phase; name → node."""
    path = f"/api/v1/namespaces/{namespace}/pods"

    def all_there() -> bool:
        return {p["metadata"]["name"] for p in api.items(path) if p["status"].get("phase") == phase} >= set(names)

    wait_until(all_there, deadline_s, f"{len(names)} pods {phase}", poll_s=0.3)
    return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in api.items(path) if p["metadata"]["name"] in names}


def explain(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    """`tiphys explain --json`, through the release's own pods."""
    command = [sys.executable, "-m", "tiphys_cli", "explain", f"pod/{name}", "--namespace", namespace, "--json"]
    run = subprocess.run(
        command, env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)["decision"]
    return found


def cgroup(cluster: Cluster, namespace: str, name: str) -> tuple[float, int]:
    """Cores and bytes that the kernel grants the pod's container, either cgroup version."""
    code = (
        "from pathlib import Path as P; r=P('/sys/fs/cgroup')\n"
        "if (r/'cpu.max').exists(): q,p=(r/'cpu.max').read_text().split(); m=(r/'memory.max').read_text()\n"
        "else: q,p=((r/'cpu'/f'cpu.cfs_{x}_us').read_text() for x in ('quota','period')); m=(r/'memory/memory.limit_in_bytes').read_text()\n"
        "print(int(q)/int(p), int(m))"
    )
    cores, memory = cluster.kubectl("exec", "--namespace", namespace, name, "--", "python", "-c", code).split()
    return float(cores), int(memory)


TOKENS = (
    "import json, os\n"
    "found = set()\n"
    "for root in ('/run', '/var/run', '/etc', '/tmp', '/var/lib'):\n"
    "    for where, _, files in os.walk(root):\n"
    "        for path in (os.path.join(where, name) for name in files):\n"
    "            try:\n"
    "                with open(path) as file: text = file.read(16384).strip()\n"
    "            except (OSError, UnicodeDecodeError): continue\n"
    "            if text.count('.') == 2 and text.startswith('eyJ'): found.add(text)\n"
    "print(json.dumps(sorted(found)))"
)
"""Prints every token of an account that a container can read: they are JSON Web Tokens."""


def running_pod(api: ApiClient, component: str) -> dict[str, Any]:
    selector = f"app.kubernetes.io/part-of=tiphys,app.kubernetes.io/component={component}"
    pods = api.items(f"/api/v1/namespaces/{HOME}/pods", labelSelector=selector)
    return next(p for p in pods if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"])


def identities(cluster: Cluster, pod_name: str, container: str) -> set[str]:
    """Who the API server takes a container for, by each of the tokens that it finds."""
    text = cluster.kubectl("exec", "--namespace", HOME, pod_name, "--container", container, "--", "python", "-c", TOKENS)
    names = set()
    for token in json.loads(text):
        with client_of(cluster, token) as client:
            names.add(who_is(client))
    return names


@pytest.mark.needs_kind
def test_each_container_of_the_release_is_who_it_should_be(cluster: Cluster, api: ApiClient) -> None:
    user = f"system:serviceaccount:{HOME}:tiphys-{{}}"
    scheduler, operator = running_pod(api, "scheduler"), running_pod(api, "operator")
    assert identities(cluster, scheduler["metadata"]["name"], "extender") == {user.format("extender")}
    assert identities(cluster, operator["metadata"]["name"], "operator") == {user.format("operator")}
    # kube-scheduler's image has no shell: its token is read where its kubelet keeps it.
    assert isinstance(cluster, KindCluster)
    volume = f"/var/lib/kubelet/pods/{scheduler['metadata']['uid']}/volumes/kubernetes.io~projected/scheduler-account/token"
    with client_of(cluster, cluster.on_node(scheduler["spec"]["nodeName"], "cat", volume).strip()) as client:
        assert who_is(client) == user.format("scheduler")
    mounted = {c["name"]: {m["name"] for m in c["volumeMounts"]} for c in scheduler["spec"]["containers"]}
    assert {name for name, volumes in mounted.items() if "scheduler-account" in volumes} == {"kube-scheduler"}
    assert not any(name.startswith("kube-api-access") for volumes in mounted.values() for name in volumes)


def test_pods_start_on_the_node_that_tiphys_chose(cluster: Cluster, api: ApiClient, active: str) -> None:
    names = [f"pod-{number}" for number in range(6)]
    for name in names:
        create(api, active, pod(name))
    nodes = wait_phase(api, active, names, "Running")
    for name in names:
        decision = explain(cluster, active, name)
        assert (decision["outcome"], decision["policyName"]) == ("scored", "least-connections")
        assert decision["top"][0]["node"] == nodes[name] == decision["chosen"]
    assert len(set(nodes.values())) == 2, "six pods are shared out over two workers"


def test_a_resize_in_place_reaches_the_cgroup_and_restarts_nothing(cluster: Cluster, api: ApiClient, active: str) -> None:
    create(api, active, pod("grows", resources=limits("200m", "64Mi")))
    wait_phase(api, active, ["grows"], "Running")
    assert cgroup(cluster, active, "grows") == (0.2, 64 * 2**20)
    wanted = {"spec": {"containers": [{"name": "main", "resources": limits("500m", "96Mi")}]}}
    api.patch(f"/api/v1/namespaces/{active}/pods/grows/resize", wanted, STRATEGIC_MERGE_PATCH)
    wait_until(lambda: cgroup(cluster, active, "grows") == (0.5, 96 * 2**20), 30, "the container's cgroup has grown", poll_s=0.5)
    wait_until(lambda: _status(api, active, "grows").get("resources") == limits("500m", "96Mi"), 30, "the kubelet has reported it")
    assert _status(api, active, "grows")["restartCount"] == 0


def _status(api: ApiClient, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = look(api, namespace, name)["status"]["containerStatuses"][0]
    return found


def test_a_pod_killed_for_its_memory_is_finished_for_tiphys(cluster: Cluster, api: ApiClient, active: str) -> None:
    create(api, active, pod("greedy", "x = bytearray(200 * 2**20)", resources=limits("200m", "48Mi")))
    node = wait_phase(api, active, ["greedy"], "Failed")["greedy"]
    ended = _status(api, active, "greedy")["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    create(api, active, pod("next"))
    wait_phase(api, active, ["next"], "Running")
    assert inflight(cluster, active, "next", node) == inflight(cluster, active, "greedy", node)


def inflight(cluster: Cluster, namespace: str, name: str, node: str) -> float:
    """Pods that Tiphys counted on the node when it decided this one."""
    found: float = explain(cluster, namespace, name)["features"][node]["inflight"]
    return found


def test_an_image_that_cannot_be_pulled_is_told_and_its_pod_still_counts(cluster: Cluster, api: ApiClient, active: str) -> None:
    create(api, active, pod("stuck", image="registry.invalid/nothing:1"))

    def reason() -> str:
        statuses = look(api, active, "stuck")["status"].get("containerStatuses") or [{}]
        return str((statuses[0].get("state") or {}).get("waiting", {}).get("reason", ""))

    wait_until(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"), RUN_S, "the kubelet says that it cannot pull")
    node = look(api, active, "stuck")["spec"]["nodeName"]
    create(api, active, pod("next"))
    wait_phase(api, active, ["next"], "Running")
    assert inflight(cluster, active, "next", node) == inflight(cluster, active, "stuck", node) + 1


def test_a_node_cordoned_in_a_burst_gets_no_more_pods_and_none_is_lost(cluster: Cluster, api: ApiClient, active: str, worker: str) -> None:
    before = [f"before-{number}" for number in range(4)]
    after = [f"after-{number}" for number in range(8)]
    for name in before:
        create(api, active, pod(name))
    wait_phase(api, active, before, "Running")
    cluster.kubectl("cordon", worker)
    for name in after:
        create(api, active, pod(name))
    nodes = wait_phase(api, active, [*before, *after], "Running")
    assert worker in {nodes[name] for name in before}
    assert worker not in {nodes[name] for name in after}


def test_a_node_whose_kubelet_dies_in_a_burst_delays_nobody_once_it_is_noticed(
    cluster: Cluster, api: ApiClient, active: str, worker: str
) -> None:
    if not isinstance(cluster, KindCluster):
        pytest.skip("needs --cluster=kind: a kubelet is stopped")
    early = [f"early-{number}" for number in range(4)]
    for name in early:
        create(api, active, pod(name))
    wait_phase(api, active, early, "Running")
    cluster.on_node(worker, "systemctl", "stop", "kubelet")
    wait_until(lambda: worker not in worker_names(api), NOT_READY_S, f"{worker} is no longer Ready", poll_s=1.0)
    late = [f"late-{number}" for number in range(6)]
    for name in late:
        create(api, active, pod(name))
    assert worker not in wait_phase(api, active, late, "Running").values()


def test_a_killed_extender_is_restarted_by_its_kubelet_and_serves_again(cluster: Cluster, api: ApiClient, active: str) -> None:
    (found,) = api.items(f"/api/v1/namespaces/{HOME}/pods", labelSelector="app.kubernetes.io/component=scheduler")
    name = found["metadata"]["name"]

    def containers() -> dict[str, dict[str, Any]]:
        return {c["name"]: c for c in look(api, HOME, name)["status"]["containerStatuses"]}

    restarts = containers()["extender"]["restartCount"]
    cluster.kubectl("exec", "--namespace", HOME, name, "--container", "extender", "--", "python", "-c", "import os; os.kill(1, 15)")
    wait_until(lambda: containers()["extender"]["restartCount"] > restarts, RUN_S, "the kubelet has started it again")
    wait_until(lambda: containers()["extender"]["ready"], RUN_S, "its readiness probe succeeds")
    assert containers()["kube-scheduler"]["restartCount"] == 0
    create(api, active, pod("later"))
    wait_phase(api, active, ["later"], "Running")
    assert explain(cluster, active, "later")["outcome"] == "scored"


def test_an_extender_without_cpu_delays_no_pod_for_long(
    request: pytest.FixtureRequest, cluster: Cluster, api: ApiClient, active: str
) -> None:
    name = running_pod(api, "scheduler")["metadata"]["name"]
    path = f"/api/v1/namespaces/{HOME}/pods/{name}"

    def another() -> None:
        api.delete(path)
        wait_until(lambda: not exists(api, path) and ready(api, HOME, "tiphys-scheduler"), RUN_S, "another scheduler is ready")

    request.addfinalizer(another)
    starved = {"spec": {"containers": [{"name": "extender", "resources": {"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}}}]}}
    api.patch(f"{path}/resize", starved, STRATEGIC_MERGE_PATCH)
    names = [f"starved-{number}" for number in range(8)]
    for pod_name in names:
        create(api, active, pod(pod_name))
    wait_phase(api, active, names, "Running")


def test_what_another_scheduler_puts_beyond_a_node_is_refused_by_its_kubelet_and_counts_no_longer(
    cluster: Cluster, api: ApiClient, active: str, worker: str
) -> None:
    create(api, active, pod("before"))
    wait_phase(api, active, ["before"], "Running")
    held = sum(p["spec"]["nodeName"] == worker for p in api.items(f"/api/v1/namespaces/{active}/pods"))
    all_of_it = api.get(f"/api/v1/nodes/{worker}")["status"]["allocatable"]["cpu"]  # some of which its own pods have
    beyond = pod("beyond", resources=limits(all_of_it, "32Mi"))
    beyond["spec"]["nodeName"] = worker
    create(api, active, beyond)
    wait_phase(api, active, ["beyond"], "Failed")
    assert look(api, active, "beyond")["status"]["reason"] == "OutOfcpu"
    create(api, active, pod("next"))
    wait_phase(api, active, ["next"], "Running")
    assert inflight(cluster, active, "next", worker) == held


def run_helm(cluster: Cluster, *arguments: str) -> None:
    command = [str(helm()), *arguments, "--namespace", HOME, "--kubeconfig", str(cluster.kubeconfig)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL)
    assert run.returncode == 0, run.stderr


def test_an_extender_behind_a_service_is_asked_over_mutual_tls(
    request: pytest.FixtureRequest, cluster: Cluster, api: ApiClient, active: str, tmp_path: Path
) -> None:
    files = write_certificates(tmp_path, f"tiphys-extender.{HOME}.svc")
    for side in ("server", "client"):
        data = {f"tls.{kind}": files[f"{side}.{kind}"].read_text() for kind in ("crt", "key")}
        body = {"metadata": {"name": f"e2e-{side}"}, "type": "kubernetes.io/tls", "stringData": data}
        api.create(f"/api/v1/namespaces/{HOME}/secrets", body)
        request.addfinalizer(functools.partial(api.delete, f"/api/v1/namespaces/{HOME}/secrets/e2e-{side}"))
    settings = {"enabled": "true", "tls.serverSecretName": "e2e-server", "tls.clientSecretName": "e2e-client"}
    flags = [part for key, value in settings.items() for part in ("--set", f"extender.service.{key}={value}")]
    authority = ("--set-file", f"extender.service.tls.ca.bundle={files['ca.crt']}")
    request.addfinalizer(lambda: run_helm(cluster, "rollback", "tiphys", "1", "--wait", "--timeout", "2m"))
    run_helm(cluster, "upgrade", "tiphys", str(CHART), *flags, *authority, "--wait", "--timeout", "2m")
    create(api, active, pod("over-tls"))
    wait_phase(api, active, ["over-tls"], "Running")
    assert explain(cluster, active, "over-tls")["outcome"] == "scored"


def test_upgrade_rollback_and_uninstall_leave_workloads_and_custom_resources_alone(cluster: Cluster, api: ApiClient, active: str) -> None:
    """The last of this file: it takes the release away."""
    workload = pod("template")
    workload["spec"] |= {"restartPolicy": "Always"}
    labels = workload["metadata"]["labels"]
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": workload["spec"]},
        },
    }
    api.create(f"/apis/apps/v1/namespaces/{active}/deployments", body)
    wait_until(lambda: ready(api, active, "web"), RUN_S, "the workload runs")

    def running() -> set[tuple[str, int]]:
        pods = api.items(f"/api/v1/namespaces/{active}/pods")
        return {
            (p["metadata"]["uid"], p["status"]["containerStatuses"][0]["restartCount"]) for p in pods if p["status"]["phase"] == "Running"
        }

    before = running()
    assert len(before) == 2
    run_helm(cluster, "upgrade", "tiphys", str(CHART), "--set", "extender.logLevel=debug", "--wait", "--timeout", "2m")
    assert running() == before
    run_helm(cluster, "rollback", "tiphys", "1", "--wait", "--timeout", "2m")
    assert running() == before
    # The hook says who would be stranded, and lets the release go: the kubelet really runs it.
    run_helm(cluster, "uninstall", "tiphys", "--wait", "--timeout", "2m")
    assert api.items(f"/apis/apps/v1/namespaces/{HOME}/deployments") == []
    assert running() == before
    assert exists(api, f"{POLICIES.format(active)}/all")
