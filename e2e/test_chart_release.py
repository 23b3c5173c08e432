"""A release of the chart on a real API server: its scheduler and extender with the chart's rights, install, upgrade, uninstall."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme
import yaml
from tests.chart.rendering import CHART, Render, helm, render

from e2e.conftest import exists, wait_until
from e2e.test_chart import serves_routing
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.kube.kubeconfig import read_kubeconfig
from tiphys_models.api.resources import RESOURCES
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.options import SchedulerOptions
from tiphys_testbed.cluster.pods import complete_pod
from tiphys_testbed.cluster.ports import free_ports

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedulingpolicies.tiphys.io"
ROUTING = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/tiphys-routing"
HELM_DEADLINE_S = 90.0
STOP_DEADLINE_S = 20.0

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.usefixtures("simulated_nodes")]


@pytest.fixture
def crd_as_found(api: ApiClient) -> Iterator[None]:
    """Takes away CRDs that were not there before: a release keeps them."""
    crds = [f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{resource.crd_name}" for resource in RESOURCES]
    made = [path for path in crds if not exists(api, path)]
    yield
    for path in made:
        if exists(api, path):
            api.delete(path)
            wait_until(lambda path=path: not exists(api, path), 30, "CRD gone")  # type: ignore[misc]


@contextmanager
def process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours with exactly this environment; ended by its pid."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    with log.open("wb") as output:
        started = subprocess.Popen(command, env=kept | environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield started
        finally:
            if started.poll() is None:
                started.send_signal(signal.SIGTERM)
                try:
                    started.wait(STOP_DEADLINE_S)
                except subprocess.TimeoutExpired:
                    started.kill()
                    started.wait(STOP_DEADLINE_S)


def environment_of(rendered: Render, container: str, namespace: str) -> dict[str, str]:
    """What the chart puts into a container's environment, fields of the pod resolved."""
    (found,) = [c for spec in rendered.pod_specs().values() for c in spec["containers"] if c["name"] == container]
    return {entry["name"]: str(entry.get("value", namespace)) for entry in found["env"]}


def take_away(cluster: Cluster, objects: list[dict[str, Any]]) -> None:
    """Delete what a test applied. The CRD stays: other tests of the session may have made it."""
    mine = [item for item in objects if item["kind"] != "CustomResourceDefinition"]
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(mine))


def served(api: ApiClient, path: str) -> bool:
    """Whether a resource can be listed; a new one answers 404, then 429, for a moment."""
    try:
        api.get(path)
    except RequestRefused as error:
        if error.status in (404, 429):
            return False
        raise
    return True


def status_code(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def write_certificates(directory: Path, server_name: str, client_authority: trustme.CA | None = None) -> dict[str, Path]:
    """What the Secrets of the chart's Service mode would hold; the scheduler's may be of an authority the extender does not trust."""
    authority = trustme.CA()
    server, client = authority.issue_cert(server_name), (client_authority or authority).issue_cert("tiphys-scheduler")
    files = {name: directory / name for name in ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")}
    authority.cert_pem.write_to_path(str(files["ca.crt"]))
    for name, issued in (("server", server), ("client", client)):
        files[f"{name}.crt"].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(files[f"{name}.key"]))
    return files


def mounted_account(cluster: Cluster, home: str, directory: Path) -> dict[str, str]:
    """What the extender finds in the scheduler's pod: the Secret with its own token as files, and where the API server is."""
    secret = f"/api/v1/namespaces/{home}/secrets/tiphys-extender-account-1"
    wait_until(lambda: "token" in (cluster.api.get(secret).get("data") or {}), 30, "the token Secret is filled")
    account = directory / "account"
    account.mkdir()
    for key, value in cluster.api.get(secret)["data"].items():
        (account / key).write_bytes(b64decode(value))
    address = urlsplit(read_kubeconfig(cluster.kubeconfig).server)
    return {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "TIPHYS_EXTENDER_ACCOUNT_DIR": str(account),
    }


SERVICE = {"enabled": True, "tls": {"serverSecretName": "s", "clientSecretName": "c", "ca": {"secretName": "s"}}}


@pytest.mark.parametrize(
    ("values", "stranger", "scored"),
    [({}, False, 5), ({"extender": {"service": SERVICE}}, False, 5), ({"extender": {"service": SERVICE}}, True, 0)],
    ids=["loopback", "service", "service-with-a-stranger's-certificate"],
)
def test_scheduler_and_extender_work_with_the_rights_and_settings_of_the_chart(
    request: pytest.FixtureRequest,
    cluster: Cluster,
    local: LocalCluster,
    home: str,
    namespace: str,
    tmp_path: Path,
    values: dict[str, Any],
    stranger: bool,
    scored: int,
) -> None:
    api = cluster.api
    rendered = render(values, "--namespace", home)
    kinds = ("CustomResourceDefinition", "ServiceAccount", "Secret", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")
    objects = [item for kind in kinds for item in rendered.of(kind) if not item["metadata"]["name"].endswith("-unroute")]
    objects.append(rendered.one("ConfigMap", "tiphys-switch"))
    request.addfinalizer(lambda: take_away(cluster, objects))
    cluster.apply(yaml.safe_dump_all(objects))
    policies = f"/apis/tiphys.io/v1alpha1/namespaces/{namespace}/schedulingpolicies"
    wait_until(lambda: served(api, policies), 30, "SchedulingPolicy served")
    api.create(
        policies,
        {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "all"}, "spec": {"mode": "Active"}},
    )

    config = yaml.safe_load(rendered.one("ConfigMap", "tiphys-scheduler-config")["data"]["scheduler-config.yaml"])
    hot, status, explain = free_ports(3)
    (tmp_path / "token").write_text("secret", encoding="utf-8")
    environment = environment_of(rendered, "extender", home) | {
        "TIPHYS_EXTENDER_HOST": "127.0.0.1",
        "TIPHYS_EXTENDER_PORT": str(hot),
        "TIPHYS_EXTENDER_STATUS_HOST": "127.0.0.1",
        "TIPHYS_EXTENDER_STATUS_PORT": str(status),
        "TIPHYS_EXTENDER_EXPLAIN_PORT": str(explain),
        "TIPHYS_EXTENDER_TOKEN_FILE": str(tmp_path / "token"),
        "TIPHYS_EXTENDER_MODELS_DIR": "",
        "TIPHYS_EXTENDER_DECISION_LOG_DIR": str(tmp_path),
    }
    scheme = "http"
    environment |= (
        mounted_account(cluster, home, tmp_path) if not values else {"KUBECONFIG": str(cluster.kubeconfig_for("tiphys-extender", home))}
    )
    if values:
        scheme, tls = "https", config["extenders"][0]["tlsConfig"]
        files = write_certificates(tmp_path, tls["serverName"], trustme.CA() if stranger else None)
        # The name and everything else stay the chart's; only mounted files and the address are here.
        tls |= {"caFile": str(files["ca.crt"]), "certFile": str(files["client.crt"]), "keyFile": str(files["client.key"])}
        environment |= {
            "TIPHYS_EXTENDER_TLS_CERT_FILE": str(files["server.crt"]),
            "TIPHYS_EXTENDER_TLS_KEY_FILE": str(files["server.key"]),
            "TIPHYS_EXTENDER_TLS_CLIENT_CA_FILE": str(files["ca.crt"]),
        }
    log = tmp_path / "extender.log"
    with process([sys.executable, "-m", "tiphys_extender"], environment, log) as extender:
        # Ready means: nodes, pods, policies and the switch have each been listed with these rights.
        wait_until(lambda: extender.poll() is not None or status_code(status, "/readyz") == 200, 30, "extender ready")
        assert extender.poll() is None, log.read_text(encoding="utf-8")
        options = SchedulerOptions(
            name=f"chart-scheduler-{namespace}",
            config_text=yaml.safe_dump(config),
            kubeconfig=cluster.kubeconfig_for("tiphys-scheduler", home),
            extender_url=f"{scheme}://127.0.0.1:{hot}",
        )
        scheduler = local.start_scheduler(options)
        try:
            lease = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases/tiphys-scheduler"
            wait_until(lambda: exists(api, lease) and api.get(lease)["spec"].get("holderIdentity"), 30, "the scheduler holds its own Lease")
            pods = f"/api/v1/namespaces/{namespace}/pods"
            for number in range(5):
                container = {"name": "main", "image": "registry.example/app:1"}
                api.create(pods, {"metadata": {"name": f"pod-{number}"}, "spec": {"schedulerName": "tiphys", "containers": [container]}})
            # Whatever becomes of the extender's answers, every pod gets a node.
            wait_until(lambda: all(pod["spec"].get("nodeName") for pod in api.items(pods)), 30, "all pods bound")
        finally:
            local.stop_process(scheduler.name)
        lines = metrics_of(status)
        answered = [line for line in lines if "_answers_total{" in line and not line.endswith(" 0.0")]
        assert f'tiphys_extender_answers_total{{outcome="scored"}} {scored:.1f}' in lines, answered
    assert "forbidden" not in log.read_text(encoding="utf-8").lower()


def metrics_of(port: int) -> list[str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()


def run_helm(cluster: Cluster, *arguments: str) -> str:
    answer = subprocess.run(
        [str(helm()), *arguments, "--kubeconfig", str(cluster.kubeconfig)],
        capture_output=True,
        text=True,
        timeout=HELM_DEADLINE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


@pytest.mark.usefixtures("crd_as_found")
def test_install_upgrade_and_uninstall_keep_what_must_be_kept_and_strand_nobody(
    request: pytest.FixtureRequest, cluster: Cluster, api: ApiClient, home: str, namespace: str, tmp_path: Path
) -> None:
    # Cluster-wide objects of a test that failed half-way must not meet the next one.
    request.addfinalizer(lambda: run_helm(cluster, "uninstall", "tiphys", "--namespace", home, "--ignore-not-found", "--no-hooks"))
    routing = serves_routing(api)
    settings = f"routing.enabled={str(routing).lower()},weightsCheck.enabled=false"  # nobody runs a hook's pod here
    chart = ("tiphys", str(CHART), "--namespace", home, "--wait", "--timeout", "60s", "--set", settings)
    run_helm(cluster, "install", *chart, "--take-ownership")
    deployments = f"/apis/apps/v1/namespaces/{home}/deployments"
    assert {item["metadata"]["name"] for item in api.items(deployments)} == {"tiphys-operator", "tiphys-scheduler"}

    secret, switch = f"/api/v1/namespaces/{home}/secrets/tiphys-token", f"/api/v1/namespaces/{home}/configmaps/tiphys-switch"
    token = api.get(secret)["data"]["token"]
    cluster.kubectl("--namespace", home, "patch", "configmap", "tiphys-switch", "--type=merge", '--patch={"data":{"enabled":"false"}}')
    run_helm(cluster, "upgrade", *chart, "--set", "extender.logLevel=debug")
    assert api.get(secret)["data"]["token"] == token, "an upgrade must not change the token under running pods"
    assert api.get(switch)["data"]["enabled"] == "false", "an upgrade must not undo a switch thrown by hand"

    assert log_level(api, home) == "debug"
    run_helm(cluster, "rollback", "tiphys", "1", "--namespace", home, "--wait", "--timeout", "60s")
    assert log_level(api, home) == "info"
    assert api.get(secret)["data"]["token"] == token, "nor must a rollback"
    assert api.get(switch)["data"]["enabled"] == "false"

    # Somebody is routed, somebody names the scheduler by himself.
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"tiphys.io/route": "enabled"}}})
    if routing:
        wait_until(lambda: routed(api, namespace), 30, "a pod of a labelled namespace is routed")
    labels = {"app": "stubborn"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"schedulerName": "tiphys", "containers": [{"name": "main", "image": "example/app:1"}]},
    }
    stubborn = {"metadata": {"name": "stubborn"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", stubborn)
    policies = f"/apis/tiphys.io/v1alpha1/namespaces/{namespace}/schedulingpolicies"
    api.create(policies, {"apiVersion": "tiphys.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "mine"}, "spec": {}})

    command = [
        str(helm()),
        "uninstall",
        "tiphys",
        "--namespace",
        home,
        "--wait",
        "--timeout",
        "60s",
        "--kubeconfig",
        str(cluster.kubeconfig),
    ]
    with process(command, {}, tmp_path / "uninstall.log") as uninstall:
        pod, said = run_hook(cluster, api, home, "unroute")
        assert f"{namespace}/stubborn" in said
        assert not exists(api, ROUTING), "the hook ends the routing"
        wait_until(lambda: not routed(api, namespace), 10, "the API server has noticed")
        assert exists(api, f"{deployments}/tiphys-scheduler"), "the scheduler is still there while the hook runs"
        complete_pod(api, pod)
        assert uninstall.wait(HELM_DEADLINE_S) == 0, (tmp_path / "uninstall.log").read_text(encoding="utf-8")

    assert api.items(deployments) == []
    assert exists(api, CRD), "CRDs are kept"
    assert [item["metadata"]["name"] for item in api.items(policies)] == ["mine"], "and policies with them"
    for path in ("clusterroles", "clusterrolebindings"):
        left = [item["metadata"]["name"] for item in api.items(f"/apis/rbac.authorization.k8s.io/v1/{path}")]
        assert not [name for name in left if name in ("tiphys-operator", "tiphys-unroute")]


def log_level(api: ApiClient, namespace: str) -> str:
    """What the extender of a release is told to log."""
    spec = api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/tiphys-scheduler")["spec"]["template"]["spec"]
    values = {e["name"]: e.get("value") for c in spec["containers"] if c["name"] == "extender" for e in c["env"]}
    return str(values["TIPHYS_EXTENDER_LOG_LEVEL"])


def routed(api: ApiClient, namespace: str) -> bool:
    """Whether a new pod would be sent to our scheduler."""
    body = {"metadata": {"generateName": "try-"}, "spec": {"containers": [{"name": "main", "image": "example/app:1"}]}}
    return bool(api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)["spec"]["schedulerName"] == "tiphys")


def run_hook(cluster: Cluster, api: ApiClient, namespace: str, component: str) -> tuple[dict[str, Any], str]:
    """The pod of a hook's Job, and what its command says, run here as its ServiceAccount: simulated nodes run nothing.

    `complete_pod` then ends the pod as a kubelet would.
    """
    pod = hook_pod(api, namespace, component)
    (container,) = pod["spec"]["containers"]
    assert pod["spec"]["serviceAccountName"] == f"tiphys-{component}"
    hook = subprocess.run(
        [sys.executable, *container["command"][1:]],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig_for(f"tiphys-{component}", namespace))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert hook.returncode == 0, hook.stderr
    return pod, hook.stdout + hook.stderr


def hook_pod(api: ApiClient, namespace: str, component: str) -> dict[str, Any]:
    """The pod of a hook's Job, once it runs."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    end = time.monotonic() + 45
    while time.monotonic() < end:
        for pod in api.items(path, labelSelector=f"app.kubernetes.io/component={component}"):
            if pod["status"].get("phase") == "Running":
                return pod
        time.sleep(0.2)
    pytest.fail("the hook's pod did not run within 45 s")


def test_a_new_ca_in_the_secret_restarts_the_scheduler_at_the_next_upgrade(cluster: Cluster, api: ApiClient, home: str) -> None:
    secret = {"metadata": {"name": "tls"}, "stringData": {"ca.crt": "one", "tls.crt": "-", "tls.key": "-"}}
    api.create(f"/api/v1/namespaces/{home}/secrets", secret)
    tls = {"serverSecretName": "tls", "clientSecretName": "tls", "ca.secretName": "tls"}
    settings = ["extender.service.enabled=true", *(f"extender.service.tls.{key}={value}" for key, value in tls.items())]
    flags = [part for setting in settings for part in ("--set", setting)]

    def checksum() -> str:
        # On the server, so that Helm can look the Secret up.
        text = run_helm(cluster, "install", "tiphys", str(CHART), "--namespace", home, "--dry-run=server", "--take-ownership", *flags)
        (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith("checksum/ca:")]
        return line

    first = checksum()
    assert checksum() == first
    api.patch(f"/api/v1/namespaces/{home}/secrets/tls", {"stringData": {"ca.crt": "two"}})
    assert checksum() != first
