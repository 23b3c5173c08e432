"""The cluster that all other end-to-end tests stand on."""

import http.client
import ssl
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kubernetes import client as official
from kubernetes import config as official_config

from e2e.conftest import ready_nodes, wait_until
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.counters import NodeCounters, NodeLoad
from tiphys_testbed.cluster.exporter import Exporter
from tiphys_testbed.cluster.identity import identity_of
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import SimulatedNode, create_nodes, delete_nodes, fleet
from tiphys_testbed.cluster.options import PrometheusOptions, SchedulerOptions, ScrapeJob
from tiphys_testbed.cluster.pods import complete_pod, complete_pods
from tiphys_testbed.cluster.processes import ProcessTable
from tiphys_testbed.cluster.prometheus import query, wait_for_series


def pod(name: str, scheduler: str = "default-scheduler", cpu: str = "100m") -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": scheduler, "containers": [container]}}


def make_pods(api: ApiClient, namespace: str, count: int, scheduler: str = "default-scheduler") -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.each(lambda index: api.create(path, pod(f"pod-{index}", scheduler)), range(count))


def pods_of(api: ApiClient, namespace: str) -> list[dict[str, Any]]:
    return api.items(f"/api/v1/namespaces/{namespace}/pods")


def phases(api: ApiClient, namespace: str) -> Counter[str]:
    return Counter(pod["status"]["phase"] for pod in pods_of(api, namespace))


def test_the_control_plane_is_ready_and_says_its_version(cluster: Cluster) -> None:
    cluster.wait_ready(30)
    assert cluster.version.startswith("v1.")
    assert "Server Version: v1." in cluster.kubectl("version")


def test_nobody_gets_in_without_a_certificate(local: LocalCluster) -> None:
    address = urlsplit(local.server)
    context = ssl.create_default_context(cafile=str(local.ca_file))
    connection = http.client.HTTPSConnection(address.hostname or "", address.port, timeout=5, context=context)
    connection.request("GET", "/api/v1/nodes")
    assert connection.getresponse().status in (401, 403)
    connection.close()


def test_a_service_account_may_do_what_its_role_says_and_no_more(cluster: Cluster, namespace: str) -> None:
    cluster.apply(
        """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
""",
        namespace,
    )
    with ApiClient.from_kubeconfig(cluster.kubeconfig_for("reader", namespace)) as reader:
        path = f"/api/v1/namespaces/{namespace}/pods"
        wait_until(lambda: reader.raw("GET", path)[0] == 200, 10, "the role is effective")
        for method, refused in (("GET", "/api/v1/nodes"), ("POST", path)):
            with pytest.raises(RequestRefused) as error:
                reader.request(method, refused, pod("x") if method == "POST" else None)
            assert error.value.status == 403


@pytest.mark.needs_kwok
def test_pods_run_on_simulated_nodes_and_typed_clients_can_read_them(
    local: LocalCluster, simulated_nodes: list[SimulatedNode], namespace: str
) -> None:
    make_pods(local.api, namespace, 24)
    wait_until(lambda: phases(local.api, namespace) == {"Running": 24}, 60, "24 pods run")
    found = pods_of(local.api, namespace)
    assert {pod["spec"]["nodeName"] for pod in found} <= {node.name for node in simulated_nodes}
    assert len({pod["status"]["podIP"] for pod in found}) == 24
    # The official client refuses container statuses without imageID.
    with official_config.new_client_from_config(str(local.kubeconfig)) as session:  # type: ignore[no-untyped-call]
        typed: list[Any] = official.CoreV1Api(session).list_namespaced_pod(namespace).items
    assert all(pod.status.container_statuses[0].state.running for pod in typed)


@pytest.mark.needs_kwok
def test_nodes_carry_machine_types_prices_and_leases(local: LocalCluster, simulated_nodes: list[SimulatedNode]) -> None:
    found = {node["metadata"]["name"]: node for node in local.api.items("/api/v1/nodes")}
    for node in simulated_nodes:
        labels = found[node.name]["metadata"]["labels"]
        assert labels["node.kubernetes.io/instance-type"] == node.machine.name
        assert found[node.name]["status"]["allocatable"]["cpu"] == str(node.machine.cores)
    leases = local.api.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")
    assert {node.name for node in simulated_nodes} <= {lease["metadata"]["name"] for lease in leases}


@pytest.mark.needs_kwok
@pytest.mark.usefixtures("simulated_nodes")
def test_pods_finish_when_told_and_not_before(local: LocalCluster, namespace: str) -> None:
    job = {
        "metadata": {"name": "work"},
        "spec": {
            "completions": 6,
            "parallelism": 3,
            "template": {"spec": pod("x")["spec"] | {"restartPolicy": "Never"}},
        },
    }
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    local.api.create(path, job)

    def counted(wanted: int) -> bool:
        return bool(local.api.get(f"{path}/work")["status"].get("succeeded") == wanted)

    for done in (3, 6):
        wait_until(lambda: phases(local.api, namespace)["Running"] == 3, 30, "three pods run")
        complete_pods(local.api, [p for p in pods_of(local.api, namespace) if p["status"]["phase"] == "Running"])
        wait_until(partial(counted, done), 30, f"{done} counted")
    wait_until(
        lambda: any(c["type"] == "Complete" for c in local.api.get(f"{path}/work")["status"].get("conditions") or ()),
        30,
        "the Job is complete",
    )
    assert phases(local.api, namespace) == {"Succeeded": 6}


@pytest.mark.needs_kwok
@pytest.mark.usefixtures("simulated_nodes")
def test_a_watch_tells_what_happens_after_a_list(local: LocalCluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    make_pods(local.api, namespace, 1)
    listed, version = local.api.snapshot(path)
    assert [p["metadata"]["name"] for p in listed] == ["pod-0"]
    local.api.create(path, pod("late"))
    seen = []
    for event in local.api.watch(path, version, timeout_s=20):
        seen.append((event["type"], event["object"]["metadata"]["name"]))
        if event["object"]["metadata"]["name"] == "late" and event["object"]["status"]["phase"] == "Running":
            break
    assert ("ADDED", "late") in seen
    assert ("ADDED", "pod-0") not in seen
    assert list(local.api.watch(path, local.api.snapshot(path)[1], timeout_s=1)) == []


@pytest.mark.needs_kwok
@pytest.mark.usefixtures("simulated_nodes")
def test_a_pod_that_took_the_name_of_another_is_not_finished(local: LocalCluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    local.api.create(path, pod("name"))
    wait_until(lambda: phases(local.api, namespace) == {"Running": 1}, 30, "the first runs")
    (first,) = pods_of(local.api, namespace)
    local.api.delete(f"{path}/name", gracePeriodSeconds=0)
    wait_until(lambda: not pods_of(local.api, namespace), 30, "the first is gone")
    assert complete_pod(local.api, first) is False
    local.api.create(path, pod("name"))
    wait_until(lambda: phases(local.api, namespace) == {"Running": 1}, 30, "the second runs")
    assert complete_pod(local.api, first) is False
    assert phases(local.api, namespace) == {"Running": 1}
    assert complete_pod(local.api, pods_of(local.api, namespace)[0], exit_code=2)
    assert phases(local.api, namespace) == {"Failed": 1}


@pytest.mark.needs_local
def test_prometheus_reads_the_simulated_nodes_and_a_schedulers_metrics(local: LocalCluster, simulated_nodes: list[SimulatedNode]) -> None:
    counters = {node.name: NodeCounters(node.machine.cores, node.machine.memory_bytes) for node in simulated_nodes}
    busiest = simulated_nodes[2].name
    counters[busiest].set_idle_instances({"default/resize": 3})
    scheduler = local.process("kube-scheduler")
    pair = local.admin_pair
    job = ScrapeJob("scheduler", f"{scheduler.url}/metrics", {}, local.ca_file, pair.cert, pair.key)
    ended = threading.Event()

    def simulate() -> None:
        while not ended.wait(0.2):
            for name, node in counters.items():
                node.advance(0.2, NodeLoad(busy_cores=1.6 if name == busiest else 0, reads_per_s=7))

    simulator = threading.Thread(target=simulate)
    simulator.start()
    try:
        with Exporter(counters) as exporter:
            url = local.start_prometheus(PrometheusOptions(exporter.node_urls(), (job,), scrape_interval_s=0.5))
            rate = 'sum by (node) (rate(node_cpu_seconds_total{mode="user"}[5s]))'
            wait_for_series(url, rate, len(simulated_nodes), 30)
            wait_until(lambda: 1.2 < value(url, rate, busiest) < 1.8, 20, "the busy node's user time is about 1.5 cores")
            assert value(url, rate, simulated_nodes[0].name) == 0
            reads = 'rate(node_disk_reads_completed_total{device="sda"}[5s])'
            assert 5 < value(url, reads, busiest) < 9
            (idle,) = query(url, "tiphys_runtime_idle_instances")
            assert idle["metric"]["node"] == idle["metric"]["instance"] == busiest
            assert (idle["metric"]["function"], idle["value"][1]) == ("default/resize", "3")
            wait_for_series(url, "scheduler_pod_scheduling_attempts_count", 1, 20)
            assert {s["value"][1] for s in query(url, "up")} == {"1"}
    finally:
        ended.set()
        simulator.join(5)
        if local.processes.find("prometheus") is not None:
            local.stop_process("prometheus")


def value(url: str, promql: str, node: str) -> float:
    return next((float(s["value"][1]) for s in query(url, promql) if s["metric"]["node"] == node), -1.0)


@pytest.mark.needs_local
@pytest.mark.usefixtures("simulated_nodes")
def test_a_second_scheduler_binds_its_own_pods_only(local: LocalCluster, namespace: str) -> None:
    config = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles: [{schedulerName: second}]
"""
    make_pods(local.api, namespace, 5, scheduler="second")
    local.start_scheduler(SchedulerOptions(name="second", config_text=config))
    try:
        wait_until(lambda: phases(local.api, namespace) == {"Running": 5}, 30, "the second scheduler binds")
        events = local.api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector="reason=Scheduled")
        sources = [e.get("reportingComponent") or e["source"]["component"] for e in events]
        assert set(sources) == {"second"}
    finally:
        local.stop_process("second")
    local.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("later", "second"))
    local.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("other"))
    wait_until(lambda: phases(local.api, namespace)["Running"] == 6, 30, "the default scheduler binds its own")
    later = local.api.get(f"/api/v1/namespaces/{namespace}/pods/later")
    assert not later["spec"].get("nodeName")


@pytest.mark.needs_local
@pytest.mark.usefixtures("simulated_nodes")
def test_two_schedulers_of_one_lease_take_turns(local: LocalCluster, namespace: str) -> None:
    options = [SchedulerOptions(name=name, scheduler_name="leased", lease="leased") for name in ("first", "standby")]
    options = [
        SchedulerOptions(
            name=o.name, scheduler_name=o.scheduler_name, lease=o.lease, lease_namespace=namespace, kubeconfig=local.kubeconfig
        )
        for o in options
    ]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leased"
    try:
        for one in options:
            local.start_scheduler(one)
        make_pods(local.api, namespace, 3, scheduler="leased")
        wait_until(lambda: phases(local.api, namespace) == {"Running": 3}, 30, "one of them binds")
        assert local.api.get(lease)["spec"]["holderIdentity"]
    finally:
        for one in options:
            if local.processes.find(one.name) is not None:
                local.stop_process(one.name)


@pytest.mark.needs_local
@pytest.mark.usefixtures("simulated_nodes")
def test_a_paused_scheduler_hangs_and_goes_on(local: LocalCluster, namespace: str) -> None:
    local.pause("kube-scheduler")
    try:
        make_pods(local.api, namespace, 2)
        wait_until(lambda: phases(local.api, namespace) == {"Pending": 2}, 5, "the pods are there")
        assert local.process("kube-scheduler").alive()
        assert not any(p["spec"].get("nodeName") for p in pods_of(local.api, namespace))
    finally:
        local.resume("kube-scheduler")
    wait_until(lambda: phases(local.api, namespace) == {"Running": 2}, 30, "they run after the pause")


@pytest.mark.needs_local
@pytest.mark.usefixtures("simulated_nodes")
def test_an_api_server_restart_is_survived(local: LocalCluster, namespace: str) -> None:
    make_pods(local.api, namespace, 3)
    wait_until(lambda: phases(local.api, namespace) == {"Running": 3}, 30, "three pods run")
    before = local.process("kube-apiserver").pid
    local.restart_apiserver(downtime_s=0.5)
    assert local.process("kube-apiserver").pid != before
    assert phases(local.api, namespace) == {"Running": 3}
    local.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("after"))
    wait_until(lambda: phases(local.api, namespace) == {"Running": 4}, 60, "scheduler and kwok came back")


@pytest.mark.needs_local
def test_bare_nodes_are_ready_at_once_with_the_controllers_paused(local: LocalCluster) -> None:
    nodes = fleet(200, pool="bare", bare=True)
    paused = ("kube-controller-manager", "kwok")
    for name in paused:
        local.pause(name)
    try:
        create_nodes(local.api, nodes)
        assert {node.name for node in nodes} <= ready_nodes(local.api)
    finally:
        delete_nodes(local.api, [node.name for node in nodes])
        for name in paused:
            local.resume(name)
    assert not any(name.startswith("bare-") for name in ready_nodes(local.api))


OWNER = """
import sys, time
from pathlib import Path
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import create_nodes, fleet
from tiphys_testbed.cluster.options import LocalOptions

cluster = LocalCluster(LocalOptions(name="crash", root=Path(sys.argv[1]))).start()
create_nodes(cluster.api, fleet(3))
print("up", flush=True)
time.sleep(120)
"""


@pytest.mark.needs_local
def test_a_crash_leaves_no_process_and_no_files(local: LocalCluster, tmp_path: Path) -> None:
    run_dir = tmp_path / "crash"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        processes = ProcessTable(run_dir).all()
        assert {p.name for p in processes} >= {"etcd", "kube-apiserver", "kube-controller-manager", "kwok"}
        assert all(p.alive() for p in processes)
        owner.kill()
        owner.wait(timeout=10)
    wait_until(lambda: not any(identity_of(p.pid) == p.identity for p in processes), 60, "all processes ended")
    wait_until(lambda: not run_dir.exists(), 10, "the run directory is gone")
    local.wait_ready(10)  # another cluster is not touched
