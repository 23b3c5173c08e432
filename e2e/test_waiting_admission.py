"""A real API server holds the pods that opted in and no others; and that those who open gates can do nothing else with a pod."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.rendering import CHART, render, run_helm, values_of

from e2e.conftest import wait_until
from e2e.test_chart import need_routing
from e2e.test_rights import outcome, type_warnings
from e2e.waiting import REACTION_S, WaitingRelease, gates_of, held, pod, waiting_release
from tiphys_cli.kube.api import ApiClient
from tiphys_models.placement.gate import GATE, MAY_WAIT
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import SimulatedNode
from tiphys_testbed.demo.openers import OPENERS

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PAGE = Path(__file__).parents[1] / "docs" / "pods-that-wait.md"
OPEN_BY_HAND = {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[WaitingRelease]:
    need_routing(cluster.api)
    with waiting_release(cluster) as made:
        yield made


@pytest.fixture
def ready(release: WaitingRelease, namespace: str) -> Iterator[WaitingRelease]:
    """Both openers are ready."""
    release.both_ready(namespace)
    yield release
    release.forget_slices()


def test_a_pod_that_opted_in_is_held_once_and_others_are_not(ready: WaitingRelease, namespace: str) -> None:
    assert gates_of(ready.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("one"))) == [GATE]
    assert ready.api.get(f"/api/v1/namespaces/{namespace}/pods/one")["spec"]["schedulerName"] == "tiphys"
    for name, body in {
        "no label": pod("n", labels={}),
        "no by label": pod("n", labels={MAY_WAIT: "false"}),
        "other scheduler": pod("n", schedulerName="default-scheduler"),
        "priority class": pod("n", priorityClassName="system-cluster-critical"),
        "of a DaemonSet": pod("n", owner="DaemonSet"),
        "bound": pod("n", nodeName="somewhere"),
    }.items():
        assert not ready.would_hold(namespace, body), name
    assert ready.would_hold(namespace, pod("n", owner="ReplicaSet"))
    for place in (ready.namespace, "kube-system"):
        assert not ready.would_hold(place), place


def test_gates_of_others_stay_and_ours_comes_beside_them_once(ready: WaitingRelease, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = ready.api.create(pods, pod("theirs", schedulingGates=[{"name": "example.com/quota"}]))
    assert sorted(gates_of(made)) == ["example.com/quota", GATE]
    assert gates_of(ready.api.create(pods, held("both"))) == [GATE]


def test_two_slices_of_the_same_openers_hold_a_pod_once(ready: WaitingRelease, namespace: str) -> None:
    ready.say_ready(dict.fromkeys(OPENERS, True), family="IPv6")
    ready.say_ready({OPENERS[0]: True}, name="half")
    made = [ready.api.create(f"/api/v1/namespaces/{namespace}/pods", pod(f"p{number}")) for number in range(10)]
    assert [gates_of(one) for one in made] == [[GATE]] * 10


@pytest.mark.parametrize(
    "said",
    [
        {OPENERS[0]: False, OPENERS[1]: True},
        {OPENERS[0]: True, OPENERS[1]: False},
        {OPENERS[0]: True},
        {},
        None,
    ],
    ids=["extender-not-ready", "operator-not-ready", "operator-gone", "nobody", "no-slice"],
)
def test_unless_both_openers_are_ready_nobody_is_held(ready: WaitingRelease, namespace: str, said: dict[str, bool] | None) -> None:
    assert ready.would_hold(namespace)
    if said is None:
        ready.forget_slices()
    else:
        ready.say_ready(said)
    wait_until(lambda: not ready.would_hold(namespace), REACTION_S, "pods are held no more")


def test_the_clusters_own_slice_says_who_is_ready(release: WaitingRelease, namespace: str, simulated_nodes: list[SimulatedNode]) -> None:
    """The Service as the chart makes it, pods with the labels that the chart gives them, the slice as the cluster makes it."""
    service = release.rendered.one("Service", "tiphys-openers")
    release.cluster.apply(yaml.safe_dump(service))
    pods = f"/api/v1/namespaces/{release.namespace}/pods"
    for name, deployment in zip(OPENERS, ("tiphys-scheduler", "tiphys-operator"), strict=True):
        template = release.rendered.one("Deployment", deployment)["spec"]["template"]
        body = pod(name, labels=template["metadata"]["labels"], nodeName=simulated_nodes[0].name)
        release.api.create(pods, body)
    try:
        wait_until(lambda: release.would_hold(namespace), 60, "pods are held once both openers' pods are ready")
        release.api.delete(f"{pods}/{OPENERS[1]}")
        wait_until(lambda: not release.would_hold(namespace), 60, "pods are held no more once the operator's pod is gone")
    finally:
        release.api.delete(pods)
        release.api.delete(f"/api/v1/namespaces/{release.namespace}/services/tiphys-openers")


def test_a_pod_that_is_routed_to_us_may_wait_too(cluster: Cluster, ready: WaitingRelease, namespace: str) -> None:
    """Policies have no order: where routing comes second, ours is asked again."""
    routing = [
        render(values_of("routing"), "--namespace", ready.namespace).one(kind, "tiphys-routing")
        for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    ]
    cluster.apply(yaml.safe_dump_all(routing))
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"tiphys.io/route": "enabled"}}})
    routed = pod("routed", schedulerName="default-scheduler")
    try:
        wait_until(lambda: ready.would_hold(namespace, routed), REACTION_S, "a routed pod is held")
        for number in range(6):  # a change of any policy makes the API server put all of them into another order
            cluster.kubectl("label", "mutatingadmissionpolicy", "tiphys-routing", f"try={number}", "--overwrite")
            time.sleep(1.0)
            assert [ready.would_hold(namespace, routed) for _ in range(5)] == [True] * 5
            assert not ready.would_hold(namespace, pod("free", labels={}, schedulerName="default-scheduler"))
    finally:
        cluster.kubectl("delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "tiphys-routing")


def test_the_api_server_finds_nothing_to_say_about_the_types_in_the_fence(release: WaitingRelease) -> None:
    assert type_warnings(release.api, "tiphys-gate-openers") == []


@pytest.fixture
def fenced(release: WaitingRelease, namespace: str) -> Iterator[tuple[str, list[ApiClient]]]:
    """A pod that is held, by another gate, too; and the openers' accounts, once the fence stands."""
    path = f"/api/v1/namespaces/{namespace}/pods/fenced"
    both = [{"name": "example.com/quota"}, {"name": GATE}]
    release.api.create(path.rpartition("/")[0], pod("fenced", schedulingGates=both))
    with release.account("tiphys-extender") as extender, release.account("tiphys-operator") as operator:
        accounts = [extender, operator]

        def refused() -> bool:
            label = {"metadata": {"labels": {"a": "b"}}}
            return all(outcome(lambda one=one: one.patch(f"{path}?dryRun=All", label)) == 403 for one in accounts)

        wait_until(refused, REACTION_S, "the fence stands")
        yield path, accounts


IMAGE = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/miner"}]
OURS_OFF = {"op": "remove", "path": "/spec/schedulingGates/1"}


@pytest.mark.parametrize(
    "change",
    [
        IMAGE,
        [*IMAGE, OURS_OFF],
        [{"op": "add", "path": "/metadata/labels/app", "value": "x"}],
        [{"op": "remove", "path": "/metadata/labels"}],
        [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}, OURS_OFF],
        [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stay"]}],
        [{"op": "add", "path": "/metadata/ownerReferences", "value": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}],
        [{"op": "add", "path": "/spec/nodeSelector", "value": {"zone": "a"}}],
        [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
        [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}],
        [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}]}}}],
        [{"op": "remove", "path": "/spec/schedulingGates/0"}],
        [{"op": "remove", "path": "/spec/schedulingGates"}],
    ],
    ids=[
        "image", "image-and-gate", "label", "no-labels", "annotation-and-gate", "finalizer", "owner", "node-selector", "toleration",
        "deadline", "affinity", "another-gate", "all-gates",
    ],
)  # fmt: skip
def test_an_opener_may_change_nothing_else_of_a_pod(
    release: WaitingRelease, fenced: tuple[str, list[ApiClient]], change: list[dict[str, Any]]
) -> None:
    path, accounts = fenced

    def attempt(account: ApiClient) -> int:
        return outcome(lambda: account.request("PATCH", f"{path}?dryRun=All", change, content_type=JSON_PATCH))

    assert [attempt(one) for one in accounts] == [403, 403]
    assert attempt(release.api) == 200, "the change itself is one that the API server takes from others"


def test_an_opener_takes_off_our_gate_and_nothing_else(fenced: tuple[str, list[ApiClient]]) -> None:
    path, (extender, operator) = fenced
    change = [{"op": "test", "path": "/spec/schedulingGates/1/name", "value": GATE}, OURS_OFF]
    assert gates_of(extender.request("PATCH", path, change, content_type=JSON_PATCH)) == ["example.com/quota"]
    assert outcome(lambda: operator.request("PATCH", path, change, content_type=JSON_PATCH)) == 422, "somebody else was there before"
    assert outcome(lambda: operator.request("PATCH", path, OPEN_BY_HAND, content_type=STRATEGIC)) == 200, "nothing is changed"


def test_all_held_pods_are_opened_by_hand_with_one_line(local: LocalCluster, namespace: str) -> None:
    """The line of docs/pods-that-wait.md."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(3):
        local.api.create(pods, held(f"h{number}"))
    (line,) = [one for one in PAGE.read_text(encoding="utf-8").splitlines() if one.startswith("kubectl get pods -A")]
    script = f'kubectl() {{ {local.toolbox.path("kubectl")} --kubeconfig={local.kubeconfig} "$@"; }}\n{line}'
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [gates_of(one) for one in local.api.items(pods)] == [[], [], []]


def test_all_held_pods_are_opened_by_our_command(local: LocalCluster, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(3):
        local.api.create(pods, held(f"h{number}"))

    def run(*options: str) -> list[str]:
        command = [sys.executable, "-m", "tiphys_cli", "gates", "open", f"--kubeconfig={local.kubeconfig}", "-n", namespace, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    names = [f"{namespace}/h{number}" for number in range(3)]
    assert run("--dry-run") == [f"held: {name}" for name in names]
    assert [gates_of(one) for one in local.api.items(pods)] == [[GATE]] * 3
    assert run() == [f"let go: {name}" for name in names]
    assert [gates_of(one) for one in local.api.items(pods)] == [[], [], []]
    assert run() == ["no pod is held"]


def test_an_upgrade_that_switches_off_leaves_the_operator_its_right_for_who_is_still_held(
    local: LocalCluster, release: WaitingRelease
) -> None:
    def openers() -> set[str]:
        answer = run_helm(
            *(
                "template",
                "tiphys",
                str(CHART),
                "--namespace",
                release.namespace,
                "--is-upgrade",
                "--dry-run=server",
                f"--kubeconfig={local.kubeconfig}",
            ),
            "--set=gates.enabled=false",
            "--take-ownership",
        )
        assert answer.returncode == 0, answer.stderr
        objects = [item for item in yaml.safe_load_all(answer.stdout) if item]
        names = {(item["kind"], item["metadata"]["name"]) for item in objects}
        assert ("MutatingAdmissionPolicy", "tiphys-waiting") not in names
        bound = {name for kind, name in names if kind == "ClusterRoleBinding" and name.endswith("-gates")}
        assert (("ValidatingAdmissionPolicy", "tiphys-gate-openers") in names) == bool(bound), "no right without its fence"
        return bound

    assert openers() == {"tiphys-operator-gates"}
    policy = release.rendered.one("MutatingAdmissionPolicy", "tiphys-waiting")
    local.kubectl("delete", "mutatingadmissionpolicy", "tiphys-waiting")
    try:
        assert openers() == set()
    finally:
        local.apply(yaml.safe_dump(policy))
