"""The operator as a process, under least rights, on the real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.conftest import exists, wait_until
from e2e.operators import StartOperator, operators
from e2e.policies import REACTION_S, condition, create_policy, events, install_crd, policies_path, policy, wait_reason
from tiphys_cli.kube.api import APPLY_PATCH, ApiClient
from tiphys_models.placement.untrained import write_untrained
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.ports import free_ports


@pytest.fixture(scope="module", autouse=True)
def crd(cluster: Cluster) -> None:
    install_crd(cluster)


@pytest.fixture
def start(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[StartOperator]:
    with operators(cluster, f"{namespace}-sys", tmp_path) as run:
        yield run


def pod(name: str, scheduler: str, **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"schedulerName": scheduler, "containers": [container]}}


def test_a_policy_gets_its_status_and_is_otherwise_untouched(api: ApiClient, namespace: str, start: StartOperator) -> None:
    operator = start()
    created = create_policy(api, "p", namespace, mode="Active", policy="greedy")
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    found = api.get(policies_path(namespace, "p"))
    status = found["status"]
    assert (status["activePolicy"], status["observedGeneration"]) == ("greedy", 1)
    assert [c["type"] for c in status["conditions"]] == ["Ready", "Conflict", "Routed", "ModelLoaded"]
    assert found["spec"] == created["spec"]
    changed = {"managedFields", "resourceVersion"}
    assert {k: v for k, v in found["metadata"].items() if k not in changed} == {
        k: v for k, v in created["metadata"].items() if k not in changed
    }
    ours = [entry for entry in found["metadata"]["managedFields"] if entry["manager"] == "tiphys-operator"]
    assert [(entry["operation"], entry["subresource"]) for entry in ours] == [("Apply", "status")]
    assert operator.get("/healthz")[0] == 200
    # a status can be seen before the first pass over all policies has ended
    wait_until(lambda: operator.get("/readyz")[0] == 200, 10, "the operator is ready")


def test_a_quiet_policy_is_not_written_again(api: ApiClient, namespace: str, start: StartOperator) -> None:
    operator = start(RESYNC_S="0.5")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    before = api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"]
    rounds = operator.metric('tiphys_operator_reconciles_total{result="success"}')
    wait_until(lambda: operator.metric('tiphys_operator_reconciles_total{result="success"}') >= rounds + 4, 10, "four more rounds")
    assert api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"] == before


def test_a_change_is_seen_by_the_watch_long_before_the_resync(api: ApiClient, namespace: str, start: StartOperator) -> None:
    operator = start(RESYNC_S="600")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    wait_until(lambda: operator.metric("tiphys_operator_last_event_timestamp_seconds") > 0, REACTION_S, "the watch delivers")
    started = time.monotonic()
    api.patch(policies_path(namespace, "p"), {"spec": {"mode": "Off"}})
    wait_reason(api, namespace, "p", "Ready", "Disabled", 5)
    assert time.monotonic() - started < 5
    assert api.get(policies_path(namespace, "p"))["status"]["observedGeneration"] == 2


def test_the_loser_of_two_policies_shows_the_conflict(api: ApiClient, namespace: str, start: StartOperator) -> None:
    start()
    create_policy(api, "general", namespace)
    create_policy(api, "special", namespace, selector={"matchLabels": {"app": "x"}})
    wait_reason(api, namespace, "general", "Conflict", "Overridden")
    wait_reason(api, namespace, "special", "Conflict", "NoConflict")
    api.delete(policies_path(namespace, "special"))
    wait_reason(api, namespace, "general", "Conflict", "NoConflict")
    wait_until(lambda: {"Overridden", "NoConflict"} <= events(api, namespace, "general"), 5, "Events of the conflict")


def test_pods_of_another_scheduler_are_counted_as_not_routed(api: ApiClient, namespace: str, start: StartOperator) -> None:
    start()
    create_policy(api, "p", namespace, selector={"matchLabels": {"app": "x"}})
    wait_reason(api, namespace, "p", "Routed", "NoPods")
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod("other", "nobody", app="x"))
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod("ours", "tiphys", app="x"))
    api.create(f"/api/v1/namespaces/{namespace}/pods", pod("unselected", "nobody", app="y"))
    wait_reason(api, namespace, "p", "Routed", "NotRouted")
    status = api.get(policies_path(namespace, "p"))["status"]
    assert (status["matchingPods"], status["routedPods"]) == (2, 1)
    api.delete(f"/api/v1/namespaces/{namespace}/pods/other", gracePeriodSeconds=0)
    wait_reason(api, namespace, "p", "Routed", "PodsRouted")


def test_every_kind_of_selector_line_selects_as_the_api_server_does(api: ApiClient, namespace: str, start: StartOperator) -> None:
    labels: dict[str, dict[str, str]] = {"none": {}, "empty": {"a": ""}, "x": {"a": "x"}, "y": {"a": "y"}, "xb": {"a": "x", "b": "1"}}
    for name, found in labels.items():
        api.create(f"/api/v1/namespaces/{namespace}/pods", pod(name, "tiphys", **found))
    lines: dict[str, tuple[dict[str, Any], int]] = {
        "in": ({"key": "a", "operator": "In", "values": ["x", "y"]}, 3),
        "in-empty": ({"key": "a", "operator": "In", "values": [""]}, 1),
        "in-empty-or-x": ({"key": "a", "operator": "In", "values": ["", "x"]}, 3),
        "not-in": ({"key": "a", "operator": "NotIn", "values": ["x"]}, 3),
        "not-in-empty": ({"key": "a", "operator": "NotIn", "values": [""]}, 4),
        "exists": ({"key": "a", "operator": "Exists"}, 4),
        "does-not-exist": ({"key": "a", "operator": "DoesNotExist"}, 1),
    }
    for name, (line, _) in lines.items():
        create_policy(api, name, namespace, selector={"matchExpressions": [line]})
    start()
    for name in lines:
        wait_reason(api, namespace, name, "Routed", "PodsRouted")
    counted = {obj["metadata"]["name"]: obj["status"]["matchingPods"] for obj in api.items(policies_path(namespace))}
    assert counted == {name: count for name, (_, count) in lines.items()}


def test_a_model_is_taken_when_it_appears_and_given_up_when_it_breaks(
    api: ApiClient, namespace: str, start: StartOperator, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    operator = start(MODELS_DIR=str(models), RESYNC_S="600")
    create_policy(api, "p", namespace, mode="Active", policy="faasrank", model="mine", fallback="greedy")
    wait_reason(api, namespace, "p", "ModelLoaded", "ModelMissing")
    status = api.get(policies_path(namespace, "p"))["status"]
    assert (status["activePolicy"], condition({"status": status}, "Ready")["reason"]) == ("greedy", "DegradedToFallback")
    network = write_untrained(models, "mine", np.random.default_rng(1))
    wait_reason(api, namespace, "p", "ModelLoaded", "ModelLoaded")
    status = api.get(policies_path(namespace, "p"))["status"]
    assert (status["activePolicy"], status["modelDigest"]) == ("faasrank", network.card.sha256)
    weights = models / "mine.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    wait_reason(api, namespace, "p", "ModelLoaded", "ModelRefused")
    assert api.get(policies_path(namespace, "p"))["status"]["activePolicy"] == "greedy"
    wait_until(lambda: {"ModelMissing", "ModelLoaded", "ModelRefused"} <= events(api, namespace, "p"), 5, "Events of the model")
    assert operator.get("/healthz")[0] == 200


def test_answers_of_a_real_extender_are_counted_and_its_absence_harms_nothing(
    cluster: Cluster, namespace: str, start: StartOperator, tmp_path: Path
) -> None:
    api = cluster.api
    token = tmp_path / "token"
    token.write_text("secret")
    create_policy(api, "p", namespace, mode="Active", policy="round-robin")
    hot, status_port, explain = free_ports(3)
    operator = start(EXTENDER_URL=f"http://localhost:{status_port}", TOKEN_FILE=str(token), RESYNC_S="1")
    wait_reason(api, namespace, "p", "Ready", "Accepted")  # nobody listens there yet
    wait_until(lambda: operator.metric("tiphys_operator_decision_pull_errors_total") > 0, REACTION_S, "failed reads counted")
    api.create("/api/v1/nodes", {"metadata": {"name": f"node-a-{namespace}"}})
    api.create("/api/v1/nodes", {"metadata": {"name": f"node-b-{namespace}"}})
    names = [f"node-a-{namespace}", f"node-b-{namespace}"]
    settings = {"PORT": hot, "STATUS_HOST": "127.0.0.1", "STATUS_PORT": status_port, "EXPLAIN_PORT": explain, "TOKEN_FILE": token}
    environment = os.environ | {f"TIPHYS_EXTENDER_{k}": str(v) for k, v in settings.items()} | {"KUBECONFIG": str(cluster.kubeconfig)}
    with (tmp_path / "extender.log").open("wb") as log:
        extender = subprocess.Popen([sys.executable, "-m", "tiphys_extender"], env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: http_get(f"http://127.0.0.1:{status_port}/readyz") == 200, 60, "extender ready")
        for index in range(7):
            asked = pod(f"f{index}", "tiphys", **{"tiphys.io/function": "f"})
            asked["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{index}"}
            body = json.dumps({"Pod": asked, "Nodes": None, "NodeNames": names}).encode()
            http_get(f"http://127.0.0.1:{hot}/prioritize", body)

        def scored() -> int:
            return int(api.get(policies_path(namespace, "p"))["status"]["decisions"]["scored"])

        wait_until(lambda: scored() == 7, REACTION_S, "seven scored answers in the status")
        rounds = operator.metric('tiphys_operator_reconciles_total{result="success"}')
        wait_until(lambda: operator.metric('tiphys_operator_reconciles_total{result="success"}') >= rounds + 3, REACTION_S, "more rounds")
        assert scored() == 7
        assert operator.metric("tiphys_operator_decisions_lost_total") == 0
    finally:
        extender.terminate()
        extender.wait(20)
        for name in names:
            api.delete(f"/api/v1/nodes/{name}")


def http_get(url: str, body: bytes | None = None) -> int:
    """Status of an answer; 0 if nobody answers."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_a_deleted_policy_leaves_nothing_behind(api: ApiClient, namespace: str, start: StartOperator) -> None:
    operator = start()
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    api.delete(policies_path(namespace, "p"))
    assert api.items(policies_path(namespace)) == []  # at once: no finalizer holds it
    series = 'tiphys_operator_reconciles_total{result="success"}'
    rounds = operator.metric(series)
    wait_until(lambda: operator.metric(series) >= rounds + 2, REACTION_S, "two more rounds")
    assert api.items(policies_path(namespace)) == []
    assert operator.metric('tiphys_operator_reconciles_total{result="error"}') == 0


def test_a_namespace_full_of_policies_can_be_deleted(cluster: Cluster, namespace: str, start: StartOperator) -> None:
    start()
    doomed = f"{namespace}-doomed"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": doomed}})
    for index in range(20):
        create_policy(cluster.api, f"p{index}", doomed)
    wait_reason(cluster.api, doomed, "p19", "Ready", "Accepted")
    cluster.api.delete(f"/api/v1/namespaces/{doomed}")
    wait_until(lambda: not exists(cluster.api, f"/api/v1/namespaces/{doomed}"), 60, "namespace gone, not stuck Terminating")


def test_a_status_corrupted_by_hand_is_repaired(api: ApiClient, namespace: str, start: StartOperator) -> None:
    start()
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    garbage = policy("p", namespace) | {"status": {"activePolicy": "nonsense", "matchingPods": 99}}
    del garbage["spec"]
    api.request(
        "PATCH",
        policies_path(namespace, "p") + "/status",
        garbage,
        content_type=APPLY_PATCH,
        query={"fieldManager": "somebody", "force": "true"},
    )
    path = policies_path(namespace, "p")
    wait_until(lambda: api.get(path)["status"]["activePolicy"] == "estimator", REACTION_S, "status repaired")
    assert api.get(path)["status"]["matchingPods"] == 0
