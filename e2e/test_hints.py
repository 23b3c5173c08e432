"""Hints on pods of a real API server: the operator under the chart's own rights writes them, controllers obey, and its fence lets nothing else by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.operators import OperatorProcess
from e2e.policies import create_policy, policies_path, wait_reason
from e2e.test_chart import need_routing
from e2e.test_rights import outcome, type_warnings
from e2e.waiting import REACTION_S, WaitingRelease, gates_of, held, pod, waiting_release
from tiphys_cli.kube.api import ApiClient
from tiphys_models.base.facts import DO_NOT_DISRUPT
from tiphys_models.base.quantity import rfc3339
from tiphys_models.placement.gate import GATE
from tiphys_models.placement.hints import DELETION_COST, MARK
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.nodes import SimulatedNode

pytestmark = [pytest.mark.needs_kwok]
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
SOON_S = 20.0
RAN_S = 300.0


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[WaitingRelease]:
    """Gates and hints, both behind their fences."""
    need_routing(cluster.api)
    with waiting_release(cluster, {"hints": {"enabled": True}}) as made:
        yield made


@pytest.fixture
def operator(cluster: Cluster, release: WaitingRelease, tmp_path: Path) -> Iterator[OperatorProcess]:
    account = cluster.kubeconfig_for("tiphys-operator", release.namespace)
    with OperatorProcess(account, release.namespace, tmp_path / "operator.log", settings={"HINTS": "true"}) as started:
        yield started


def ending(name: str, node: str, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod that ends by itself, on a node already."""
    body = pod(name, labels={"tiphys.io/function": "encode"}, nodeName=node, restartPolicy="Never")
    body["metadata"]["annotations"] = dict(annotations or {})
    return body


def annotations_of(api: ApiClient, path: str) -> dict[str, str]:
    return dict(api.get(path)["metadata"].get("annotations") or {})


def have_ended(api: ApiClient, pods: str, node: str) -> None:
    """Three pods of the application have run for five minutes."""
    names = [f"former-{number}" for number in range(3)]
    for name in names:
        api.create(pods, ending(name, node))

    def all_run() -> bool:
        return all(api.get(f"{pods}/{name}")["status"].get("phase") == "Running" for name in names)

    wait_until(all_run, SOON_S, "they run")
    for name in names:
        began = rfc3339(datetime.now(UTC).timestamp() - RAN_S)
        api.patch(f"{pods}/{name}/status", {"status": {"startTime": began}})
    for name in names:
        api.patch(f"{pods}/{name}/status", {"status": {"phase": "Succeeded"}})


def replicas(api: ApiClient, namespace: str, nodes: list[str]) -> dict[str, str]:
    """A ReplicaSet with a pod on each of these nodes; their names by node."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("w")["spec"]}
    spec = {"replicas": len(nodes), "selector": {"matchLabels": labels}, "template": template}
    api.create(f"/apis/apps/v1/namespaces/{namespace}/replicasets", {"metadata": {"name": "web"}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def there() -> list[str]:
        return [one["metadata"]["name"] for one in api.items(pods) if one["metadata"].get("labels") == labels]

    wait_until(lambda: len(there()) == len(nodes), SOON_S, "the ReplicaSet has made its pods")
    found = dict(zip(nodes, there(), strict=True))
    for node, name in found.items():
        binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        api.create(f"{pods}/{name}/binding", binding)
    return found


def test_hints_are_written_obeyed_and_taken_off(
    api: ApiClient, namespace: str, operator: OperatorProcess, simulated_nodes: list[SimulatedNode]
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    nodes = [node.name for node in simulated_nodes[:2]]
    create_policy(api, "p", namespace, mode="Active", hints={"doNotDisrupt": True, "deletionCost": True})
    wait_reason(api, namespace, "p", "Hinting", "Hinting")
    api.create(pods, ending("users", nodes[1], {DO_NOT_DISRUPT: "true"}))
    wait_until(lambda: operator.metric('tiphys_operator_pods_kept{loop="cluster"}') > 0, SOON_S, "the operator watches pods")
    have_ended(api, pods, nodes[0])
    wait_until(lambda: not [p for p in api.items(pods) if p["status"].get("phase") == "Pending"], SOON_S, "all are on their way")
    for name in ("former-0", "former-1", "former-2"):
        api.delete(f"{pods}/{name}")

    api.create(pods, ending("next", nodes[1]))
    wait_until(lambda: MARK in annotations_of(api, f"{pods}/next"), SOON_S, "its hint is written")
    written = annotations_of(api, f"{pods}/next")
    assert re.fullmatch(r"30\ds", written[DO_NOT_DISRUPT]), written
    assert written[MARK] == f"doNotDisrupt={written[DO_NOT_DISRUPT]}"
    assert annotations_of(api, f"{pods}/users") == {DO_NOT_DISRUPT: "true"}

    on = replicas(api, namespace, nodes)
    wait_until(lambda: all(DELETION_COST in annotations_of(api, f"{pods}/{name}") for name in on.values()), SOON_S, "costs are written")
    cheap, dear = (int(annotations_of(api, f"{pods}/{on[node]}")[DELETION_COST]) for node in nodes)
    assert cheap < dear, "the second node stays for a protected pod"
    ready = {"type": "Ready", "status": "True"}
    wait_until(
        lambda: all(
            ready.items() <= c.items()
            for n in on.values()
            for c in api.get(f"{pods}/{n}")["status"].get("conditions", [])
            if c["type"] == "Ready"
        ),
        SOON_S,
        "both are ready",
    )
    api.patch(f"/apis/apps/v1/namespaces/{namespace}/replicasets/web", {"spec": {"replicas": 1}})
    gone = lambda: outcome(lambda: api.get(f"{pods}/{on[nodes[0]]}")) == 404  # noqa: E731
    wait_until(gone, SOON_S, "the replica whose node may go is taken first")
    assert outcome(lambda: api.get(f"{pods}/{on[nodes[1]]}")) == 200

    api.patch(policies_path(namespace, "p"), {"spec": {"hints": None}})
    left = ("next", on[nodes[1]])
    wait_until(lambda: not any(annotations_of(api, f"{pods}/{name}") for name in left), SOON_S, "hints are taken off")
    assert annotations_of(api, f"{pods}/users") == {DO_NOT_DISRUPT: "true"}
    assert operator.metric('tiphys_operator_hints_refused_total{reason="forbidden"}') == 0


def test_the_api_server_finds_nothing_to_say_about_the_types_in_the_fences(release: WaitingRelease) -> None:
    assert type_warnings(release.api, "tiphys-hint-writer") == []
    assert type_warnings(release.api, "tiphys-gate-openers") == []


@pytest.fixture
def fenced(release: WaitingRelease, namespace: str) -> Iterator[tuple[str, ApiClient]]:
    """A pod whose author protected it, with a cost of ours; and the operator's account, once the fence stands."""
    path = f"/api/v1/namespaces/{namespace}/pods/fenced"
    body = pod("fenced", labels={"app": "a"})
    body["metadata"]["annotations"] = {DO_NOT_DISRUPT: "true", DELETION_COST: "10", MARK: "deletionCost=10", "example.com/a": "b"}
    release.api.create(path.rpartition("/")[0], body)
    with release.account("tiphys-operator") as operator:
        label = {"metadata": {"labels": {"a": "b"}}}
        wait_until(lambda: outcome(lambda: operator.patch(f"{path}?dryRun=All", label)) == 403, REACTION_S, "the fence stands")
        yield path, operator


def said(value: str | None, mark: str | None, name: str = DELETION_COST) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value, MARK: mark}}}


REFUSED: dict[str, Any] = {
    "label": {"metadata": {"labels": {"a": "b"}}},
    "finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
    "another annotation": {"metadata": {"annotations": {"example.com/c": "d"}}},
    "another annotation's value": {"metadata": {"annotations": {"example.com/a": "c"}}},
    "another annotation's end": {"metadata": {"annotations": {"example.com/a": None}}},
    "no mark": {"metadata": {"annotations": {DELETION_COST: "20"}}},
    "another value than the mark's": said("20", "deletionCost=21"),
    "what a user wrote": said("95s", "doNotDisrupt=95s", DO_NOT_DISRUPT),
    "the end of what a user wrote": {"metadata": {"annotations": {DO_NOT_DISRUPT: None}}},
    "a negative cost": said("-2147483647", "deletionCost=-2147483647"),
    "a large cost": said("100", "deletionCost=100"),
    "a deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "a toleration": [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    "image": [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/miner"}],
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=list(REFUSED))
def test_who_writes_hints_may_change_nothing_else_of_a_pod(release: WaitingRelease, fenced: tuple[str, ApiClient], change: Any) -> None:
    path, operator = fenced
    kind = JSON_PATCH if isinstance(change, list) else MERGE_PATCH

    def attempt(account: ApiClient) -> int:
        return outcome(lambda: account.request("PATCH", f"{path}?dryRun=All", change, content_type=kind))

    assert attempt(operator) == 403
    assert attempt(release.api) == 200, "the API server takes it from others"


def test_who_writes_hints_writes_hints_and_opens_gates_and_no_more_at_once(
    release: WaitingRelease, fenced: tuple[str, ApiClient], namespace: str
) -> None:
    path, operator = fenced
    assert outcome(lambda: operator.patch(path, said("23", "deletionCost=23"))) == 200
    assert outcome(lambda: operator.patch(path, said(None, None))) == 200
    plain = f"/api/v1/namespaces/{namespace}/pods/plain"
    release.api.create(plain.rpartition("/")[0], pod("plain", labels={}))
    for value, code in (("86401s", 403), ("0s", 403), ("true", 403), ("1h", 403), ("86400s", 200)):
        assert outcome(lambda value=value: operator.patch(plain, said(value, f"doNotDisrupt={value}", DO_NOT_DISRUPT))) == code, value
    gated = f"/api/v1/namespaces/{namespace}/pods/gated"
    release.api.create(gated.rpartition("/")[0], held("gated"))
    opening = [{"op": "test", "path": "/spec/schedulingGates/0/name", "value": GATE}, {"op": "remove", "path": "/spec/schedulingGates/0"}]
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil.example/miner"}]
    assert outcome(lambda: operator.request("PATCH", gated, [*opening, *image], content_type=JSON_PATCH)) == 403
    assert gates_of(operator.request("PATCH", gated, opening, content_type=JSON_PATCH)) == []
    with release.account("tiphys-extender") as extender:
        assert outcome(lambda: extender.patch(plain, said(None, None, DO_NOT_DISRUPT))) == 403, "hints are the operator's alone"
    home = f"/api/v1/namespaces/{release.namespace}/pods/own"
    release.api.create(home.rpartition("/")[0], pod("own", labels={}))
    assert outcome(lambda: operator.patch(home, said("1", "deletionCost=1"))) == 403
