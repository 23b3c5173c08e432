"""The support commands as a user runs them, against a real API server with the chart's own objects."""

import datetime as dt
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.conftest import NODES, wait_until
from e2e.live import Inputs, lane, make_inputs
from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.placement.snapshot import read_snapshot
from tiphys_testbed.bench.closed_loop import ClosedLoop
from tiphys_testbed.bench.scratch import scratch
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import SimulatedNode, delete_nodes

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

RELEASE_NAMESPACE = "tiphys-support"
CLUSTER_WIDE = (
    "clusterrole,clusterrolebinding,validatingadmissionpolicy,validatingadmissionpolicybinding,flowschema,prioritylevelconfiguration"
)
CLAIM = ("kube-system", "tiphys-operator")
"""The Lease that one release of the cluster holds."""
CHART = Path(__file__).parents[1] / "helm" / "tiphys"


def tiphys(local: LocalCluster, *arguments: str, status: int = 0) -> str:
    """Run the command as the administrator; its standard output."""
    command = [sys.executable, "-m", "tiphys_cli", *arguments]
    environment = os.environ | {"KUBECONFIG": str(local.kubeconfig)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == status, f"{arguments} ended with {run.returncode}\n{run.stdout}\n{run.stderr}"
    return run.stdout


@pytest.fixture(scope="module")
def inputs(local: LocalCluster) -> Iterator[Inputs]:
    made = make_inputs(local, NODES, "support")
    yield made
    delete_nodes(local.api, [node.name for node in made.nodes])


@pytest.fixture
def release(local: LocalCluster, simulated_nodes: list[SimulatedNode]) -> Iterator[str]:
    """The chart's objects, as `helm install` would make them; kwok runs the pods."""
    assert simulated_nodes
    helm = str(local.toolbox.path("helm"))
    command = [helm, "template", "tiphys", str(CHART), f"--namespace={RELEASE_NAMESPACE}", f"--kube-version={local.version}"]
    rendered = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    documents = [d for d in yaml.safe_load_all(rendered) if d and "helm.sh/hook" not in (d["metadata"].get("annotations") or {})]
    path = f"/api/v1/namespaces/{RELEASE_NAMESPACE}"
    local.api.create("/api/v1/namespaces", {"metadata": {"name": RELEASE_NAMESPACE}})
    local.apply(yaml.safe_dump_all(documents))
    wait_until(lambda: _ready(local), 90, "the release's Deployments ready", poll_s=0.5)
    yield RELEASE_NAMESPACE
    local.kubectl("delete", CLUSTER_WIDE, "-l", "app.kubernetes.io/part-of=tiphys", "--ignore-not-found")
    local.kubectl("delete", "role,rolebinding", "-n", "kube-system", "-l", "app.kubernetes.io/part-of=tiphys", "--ignore-not-found")
    local.kubectl("delete", "lease", "-n", CLAIM[0], CLAIM[1], "--ignore-not-found")
    local.api.delete(path)
    wait_until(lambda: _gone(local, path), 60, "the release's namespace is gone", poll_s=0.5)


def _ready(local: LocalCluster) -> bool:
    found = local.api.items(f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments")
    return bool(found) and all((d.get("status") or {}).get("readyReplicas") == d["spec"]["replicas"] for d in found)


def _gone(local: LocalCluster, path: str) -> bool:
    try:
        local.api.get(path)
    except RequestRefused as error:
        return error.status == 404
    return False


def _doctor(local: LocalCluster, extender_url: str, status: int) -> dict[str, list[dict[str, Any]]]:
    answer = json.loads(
        tiphys(local, "doctor", "--json", "--tiphys-namespace", RELEASE_NAMESPACE, "--extender-url", extender_url, status=status)
    )
    assert answer["summary"]["FAIL"] == sum(f["grade"] == "FAIL" for f in answer["findings"])
    return {grade: [f for f in answer["findings"] if f["grade"] == grade] for grade in ("OK", "WARN", "FAIL")}


def _hold_leases(local: LocalCluster, age_s: float) -> None:
    renewed = (dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    for namespace, name, holder in (
        (RELEASE_NAMESPACE, "tiphys-scheduler", "tiphys-scheduler-0"),
        (RELEASE_NAMESPACE, "tiphys-operator", "tiphys-operator-0"),
        (*CLAIM, f"{RELEASE_NAMESPACE}/tiphys-operator/tiphys-operator-0"),
    ):
        local.apply(
            yaml.safe_dump(
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
                }
            )
        )


def test_doctor_finds_a_sound_release_sound_and_a_broken_one_broken(
    local: LocalCluster, inputs: Inputs, namespace: str, release: str
) -> None:
    with lane(local, namespace, inputs) as running:
        running.policy("Shadow", "hashing")
        url = running.extender.explain_url
        found = _doctor(local, url, status=1)
        assert {f["check"] for f in found["FAIL"]} == {"leases", "releases"}, "nobody leads yet, and all else is well"
        _hold_leases(local, age_s=2)
        found = _doctor(local, url, status=0)
        assert found["FAIL"] == []
        assert {f["check"] for f in found["OK"]} >= {
            "versions", "crd", "deployments", "scheduler-name", "qps", "http-timeout", "ca", "leases", "releases", "rbac", "extender", "kill-switch",
        }  # fmt: skip
        # break it in four places
        _hold_leases(local, age_s=300)
        config = f"/api/v1/namespaces/{release}/configmaps/tiphys-scheduler-config"
        data = local.api.get(config)["data"]
        local.api.patch(config, {"data": {key: text.replace("200ms", "5s") for key, text in data.items()}})
        local.api.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tiphys-extender")
        local.api.patch(f"/api/v1/namespaces/{release}/configmaps/tiphys-switch", {"data": {"enabled": "false"}})
        found = _doctor(local, url, status=1)
        failed = {f["check"] for f in found["FAIL"]}
        assert failed == {"leases", "releases", "http-timeout", "rbac"}
        said = [f["message"] for f in found["FAIL"] if f["check"] == "rbac"]
        for what in ("schedulingpolicies", "nodes", "pods"):
            assert any(f"may not list {what}" in message for message in said), (
                "its account is its own: the scheduler's rights are not the extender's"
            )
        assert any(f["check"] == "kill-switch" for f in found["WARN"])
        assert all(f["advice"] for f in found["FAIL"])


def test_doctor_without_an_installation_says_what_to_do(local: LocalCluster) -> None:
    tiphys(local, "doctor", "--tiphys-namespace", "default", status=2)


def test_explain_prints_the_answer_and_its_json(local: LocalCluster, inputs: Inputs, namespace: str) -> None:
    with lane(local, namespace, inputs) as running:
        running.policy("Active", "faasrank")
        node = running.placed(running.make_pods(1), 30)["pod-0000"]
        arguments = ("explain", "pod/pod-0000", "-n", namespace, "--extender-url", running.extender.explain_url)
        text = tiphys(local, *arguments)
        assert f"is on {node}" in text
        for word in ("cpu_user", "init_time", "candidate", "faasrank", f"{namespace}/test"):
            assert word in text
        answer = json.loads(tiphys(local, *arguments, "--json"))
        assert answer["node"] == node
        assert answer["decision"]["outcome"] in ("scored", "fallback")
        tiphys(local, "explain", "pod/no-such-pod", "-n", namespace, "--extender-url", running.extender.explain_url, status=1)


def test_a_snapshot_holds_no_secrets_and_answers_without_the_cluster(
    local: LocalCluster, inputs: Inputs, namespace: str, tmp_path: Path
) -> None:
    with lane(local, namespace, inputs) as running:
        running.policy("Active", "least-connections")
        secret = [{"name": "main", "image": "registry.example/f:1", "env": [{"name": "PASSWORD", "value": "not-to-be-seen"}]}]
        running.placed(running.make_pods(5, containers=secret), 30)
    file = tmp_path / "cluster.snapshot"
    tiphys(local, "snapshot", str(file))
    assert b"not-to-be-seen" not in file.read_bytes()
    snapshot = read_snapshot(file)
    assert sum(p["metadata"]["namespace"] == namespace for p in snapshot.pods) == 5
    assert {n["metadata"]["name"] for n in snapshot.nodes} >= {n.name for n in inputs.nodes}
    with scratch("replay") as table:
        replay = Extender.start(table, ExtenderOptions(snapshot=file))
        replay.wait_ready()
        pod = {"metadata": {"name": "p", "namespace": namespace, "uid": "replayed"}, "spec": {"schedulerName": "tiphys"}}
        body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": [n.name for n in inputs.nodes]}).encode()
        with ClosedLoop(replay.port) as loop:
            _, answer = loop.call("/prioritize", body)
        assert max(item["Score"] for item in json.loads(answer)) == 10
        assert replay.metrics().total("tiphys_extender_policy_answers_total", policy="least-connections") == 1


def test_unroute_lists_who_would_be_stranded(local: LocalCluster, namespace: str) -> None:
    pod = {"metadata": {"name": "left"}, "spec": {"schedulerName": "left-behind", "containers": [{"name": "c", "image": "i"}]}}
    local.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wait_until(lambda: local.api.get(f"/api/v1/namespaces/{namespace}/pods/left"), 10, "the pod is there")
    arguments = ("unroute", "--dry-run", "--scheduler-name", "left-behind", "--json")
    answer = json.loads(tiphys(local, *arguments, status=1))
    assert answer["pending_pods"] == [f"Pod {namespace}/left"]
    local.api.delete(f"/api/v1/namespaces/{namespace}/pods/left", gracePeriodSeconds=0)
    answer = json.loads(tiphys(local, *arguments))
    assert answer == {"removed": [], "opened": [], "pending_pods": [], "workloads": [], "problems": []}


def test_policies_lists_the_names_of_the_crd(local: LocalCluster) -> None:
    listed = json.loads(tiphys(local, "policies", "--json"))
    crd = local.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedulingpolicies.tiphys.io")
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    names = {kind: {row["name"] for row in listed if row["kind"] == kind} for kind in ("placement", "selector")}
    # names are open strings, so that other packages can bring some; ours are those of the rules that may answer instead, and the learned ones
    learned = [row["name"] for row in listed if row["kind"] == "placement" and row["learned"]]
    assert learned == ["faasrank", "estimator-network"]
    assert names["placement"] == {*spec["fallback"]["enum"], *learned}
    for name in (*names["placement"], *names["selector"]):
        assert re.fullmatch(spec["policy"]["pattern"], name)
        assert re.fullmatch(spec["select"]["properties"]["by"]["pattern"], name)
