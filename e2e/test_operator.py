"""The operator as a process, under least rights, on the real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.conftest import exists, wait_until
from e2e.operators import RULES, OperatorProcess, grant, leaders
from e2e.policies import condition, create_policy, install_crd, policies_path, policy
from tiphys_cli.cluster.api import APPLY_PATCH, ApiClient
from tiphys_cli.cluster.base import Cluster
from tiphys_cli.cluster.local import LocalCluster
from tiphys_cli.cluster.ports import free_ports
from tiphys_models.artifacts.untrained import write_untrained

Start = Callable[..., OperatorProcess]
REACTION_S = 20.0
LEASE_S = 15.0


@pytest.fixture(scope="module", autouse=True)
def crd(cluster: Cluster) -> None:
    install_crd(cluster)


@pytest.fixture
def start(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Start operators of a release in namespace `<test>-sys`; all end with the test."""
    release = f"{namespace}-sys"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": release}})
    started: list[OperatorProcess] = []

    def run(identity: str = "operator-0", rules: list[dict[str, Any]] | None = None, **settings: str) -> OperatorProcess:
        kubeconfig = grant(cluster, release, rules)
        operator = OperatorProcess(kubeconfig, release, tmp_path / f"{identity}.log", identity, settings)
        started.append(operator)
        return operator.start()

    yield run
    for operator in started:
        operator.stop()
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.kubectl("delete", kind, f"tiphys-operator-{release}", "--ignore-not-found")
    cluster.api.delete(f"/api/v1/namespaces/{release}")


def pod(name: str, scheduler: str, **labels: str) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"schedulerName": scheduler, "containers": [container]}}


def reason(api: ApiClient, namespace: str, name: str, kind: str) -> str:
    found: str = condition(api.get(policies_path(namespace, name)), kind).get("reason", "")
    return found


def wait_reason(api: ApiClient, namespace: str, name: str, kind: str, wanted: str, deadline_s: float = REACTION_S) -> None:
    try:
        wait_until(lambda: reason(api, namespace, name, kind) == wanted, deadline_s, f"{name}: {kind} {wanted}")
    except pytest.fail.Exception as failure:
        pytest.fail(f"{failure}; it is {api.get(policies_path(namespace, name)).get('status')}")


def events(api: ApiClient, namespace: str, name: str) -> set[str]:
    fields = f"involvedObject.name={name},involvedObject.kind=SchedulingPolicy"
    return {event["reason"] for event in api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=fields)}


def test_a_policy_gets_its_status_and_is_otherwise_untouched(api: ApiClient, namespace: str, start: Start) -> None:
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
    assert operator.get("/readyz")[0] == operator.get("/healthz")[0] == 200


def test_a_quiet_policy_is_not_written_again(api: ApiClient, namespace: str, start: Start) -> None:
    operator = start(RESYNC_S="0.5")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    before = api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"]
    rounds = operator.metric('tiphys_operator_reconciles_total{result="success"}')
    wait_until(lambda: operator.metric('tiphys_operator_reconciles_total{result="success"}') >= rounds + 4, 10, "four more rounds")
    assert api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"] == before


def test_a_change_is_seen_by_the_watch_long_before_the_resync(api: ApiClient, namespace: str, start: Start) -> None:
    operator = start(RESYNC_S="600")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    wait_until(lambda: operator.metric("tiphys_operator_last_event_timestamp_seconds") > 0, REACTION_S, "the watch delivers")
    started = time.monotonic()
    api.patch(policies_path(namespace, "p"), {"spec": {"mode": "Off"}})
    wait_reason(api, namespace, "p", "Ready", "Disabled", 5)
    assert time.monotonic() - started < 5
    assert api.get(policies_path(namespace, "p"))["status"]["observedGeneration"] == 2


def test_the_loser_of_two_policies_shows_the_conflict(api: ApiClient, namespace: str, start: Start) -> None:
    start()
    create_policy(api, "general", namespace)
    create_policy(api, "special", namespace, selector={"matchLabels": {"app": "x"}})
    wait_reason(api, namespace, "general", "Conflict", "Overridden")
    wait_reason(api, namespace, "special", "Conflict", "NoConflict")
    api.delete(policies_path(namespace, "special"))
    wait_reason(api, namespace, "general", "Conflict", "NoConflict")
    wait_until(lambda: {"Overridden", "NoConflict"} <= events(api, namespace, "general"), 5, "Events of the conflict")


def test_pods_of_another_scheduler_are_counted_as_not_routed(api: ApiClient, namespace: str, start: Start) -> None:
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


def test_every_kind_of_selector_line_selects_as_the_api_server_does(api: ApiClient, namespace: str, start: Start) -> None:
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


def test_a_model_is_taken_when_it_appears_and_given_up_when_it_breaks(api: ApiClient, namespace: str, start: Start, tmp_path: Path) -> None:
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
    cluster: Cluster, namespace: str, start: Start, tmp_path: Path
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


def test_a_deleted_policy_leaves_nothing_behind(api: ApiClient, namespace: str, start: Start) -> None:
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


def test_a_namespace_full_of_policies_can_be_deleted(cluster: Cluster, namespace: str, start: Start) -> None:
    start()
    doomed = f"{namespace}-doomed"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": doomed}})
    for index in range(20):
        create_policy(cluster.api, f"p{index}", doomed)
    wait_reason(cluster.api, doomed, "p19", "Ready", "Accepted")
    cluster.api.delete(f"/api/v1/namespaces/{doomed}")
    wait_until(lambda: not exists(cluster.api, f"/api/v1/namespaces/{doomed}"), 60, "namespace gone, not stuck Terminating")


def test_a_status_corrupted_by_hand_is_repaired(api: ApiClient, namespace: str, start: Start) -> None:
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
    wait_until(lambda: api.get(path)["status"]["activePolicy"] == "warm-first", REACTION_S, "status repaired")
    assert api.get(path)["status"]["matchingPods"] == 0


def test_an_operator_killed_and_started_again_goes_on_where_it_was(api: ApiClient, namespace: str, start: Start) -> None:
    operator = start()
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    before = api.get(policies_path(namespace, "p"))["status"]
    operator.signal(signal.SIGKILL)
    operator.wait(5)
    create_policy(api, "while-away", namespace)
    operator.start()
    # the dead process still holds the Lease: its successor has another identity and waits it out
    wait_reason(api, namespace, "while-away", "Ready", "Accepted", LEASE_S + REACTION_S)
    after = api.get(policies_path(namespace, "p"))["status"]
    assert condition({"status": after}, "Ready") == condition({"status": before}, "Ready")


def test_a_stopped_leader_hands_over_at_once_and_exits_with_0(api: ApiClient, namespace: str, start: Start) -> None:
    first = start("operator-0")
    wait_until(lambda: first.leads, REACTION_S, "the first leads")
    second = start("operator-1")
    wait_until(lambda: second.get("/readyz")[0] == 200, REACTION_S, "the second is ready as a standby")
    assert not second.leads
    assert first.stop() == 0
    wait_until(lambda: second.leads, 4, "the second leads within 4 s")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")


def test_of_two_operators_one_leads_and_a_killed_leader_is_replaced(api: ApiClient, namespace: str, start: Start) -> None:
    first = start("operator-0")
    wait_until(lambda: first.leads, REACTION_S, "the first leads")
    second = start("operator-1")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    wait_until(lambda: second.get("/readyz")[0] == 200, REACTION_S, "the second is ready as a standby")
    assert all(names == ["operator-0"] for _, names in leaders([first, second], 3))
    assert second.metric('tiphys_operator_writes_total{kind="status"}') == 0
    assert second.get("/healthz")[0] == 200
    first.signal(signal.SIGKILL)
    samples = leaders([second], LEASE_S + 1.5)
    took_over_s = next((at for at, names in samples if names), None)
    # the Lease lasts 15 s from its last renewal, which was up to 2.4 s before the end
    assert took_over_s is not None
    assert took_over_s <= LEASE_S + 0.3, "0.3 s for one request and for looking"
    assert took_over_s > LEASE_S - 2.4 - 1
    print(f"failover took {took_over_s:.1f} s")  # noqa: T201 - shown with -rP
    create_policy(api, "later", namespace)
    wait_reason(api, namespace, "later", "Ready", "Accepted")


def test_a_frozen_leader_stops_writing_before_its_successor_starts_and_ends_when_it_thaws(
    api: ApiClient, namespace: str, start: Start
) -> None:
    first = start("operator-0", RESYNC_S="0.5")
    wait_until(lambda: first.leads, REACTION_S, "the first leads")
    second = start("operator-1", RESYNC_S="0.5")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")
    first.signal(signal.SIGSTOP)
    wait_until(lambda: second.leads, LEASE_S + 3, "the second leads")
    create_policy(api, "while-frozen", namespace)
    wait_reason(api, namespace, "while-frozen", "Ready", "Accepted")
    version = api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"]
    first.signal(signal.SIGCONT)
    assert first.wait(REACTION_S) == 75
    assert second.leads
    assert api.get(policies_path(namespace, "p"))["metadata"]["resourceVersion"] == version


@pytest.mark.needs_local
def test_a_short_restart_of_the_api_server_is_survived(local: LocalCluster, namespace: str, start: Start) -> None:
    # on a busy machine the restart alone may take longer than the default of 10 s
    operator = start(LEASE_DURATION_S="45", RENEW_S="30")
    create_policy(local.api, "before", namespace)
    wait_reason(local.api, namespace, "before", "Ready", "Accepted")
    local.restart_apiserver()
    create_policy(local.api, "after", namespace)
    wait_reason(local.api, namespace, "after", "Ready", "Accepted", 30)
    assert operator.process is not None
    assert operator.process.poll() is None, operator.log.read_text()[-2000:]


@pytest.mark.needs_local
def test_a_long_outage_of_the_api_server_ends_the_leader_and_its_next_life_goes_on(
    local: LocalCluster, namespace: str, start: Start
) -> None:
    operator = start()
    create_policy(local.api, "before", namespace)
    wait_reason(local.api, namespace, "before", "Ready", "Accepted")
    local.restart_apiserver(downtime_s=14)
    assert operator.wait(REACTION_S) == 75
    operator.start()
    create_policy(local.api, "after", namespace)
    wait_reason(local.api, namespace, "after", "Ready", "Accepted", LEASE_S + REACTION_S)


@pytest.mark.parametrize("lacking", ["pods", "events", "schedulingpolicies/status", "schedulingpolicies"])
def test_a_missing_right_is_named_and_only_switches_off_what_needs_it(cluster: Cluster, namespace: str, start: Start, lacking: str) -> None:
    operator = start(rules=[rule for rule in RULES if rule["resources"] != [lacking]])
    create_policy(cluster.api, "p", namespace)
    verb = {"pods": "list", "events": "create", "schedulingpolicies/status": "patch", "schedulingpolicies": "list"}[lacking]
    group = ".tiphys.io" if lacking.startswith("schedulingpolicies") else ""
    series = f'tiphys_operator_permission_missing{{resource="{lacking}{group}",verb="{verb}"}}'
    wait_until(lambda: operator.metric(series) == 1, REACTION_S, f"{series} is 1")
    assert f"RBAC denies {verb} {lacking}" in operator.log.read_text()
    match lacking:
        case "pods":
            wait_reason(cluster.api, namespace, "p", "Routed", "PodsUnknown")
            assert reason(cluster.api, namespace, "p", "Ready") == "Accepted"
        case "events":
            wait_reason(cluster.api, namespace, "p", "Ready", "Accepted")
            assert events(cluster.api, namespace, "p") == set()
        case _:
            time.sleep(4)
            assert "status" not in cluster.api.get(policies_path(namespace, "p"))
    assert operator.process is not None
    assert operator.process.poll() is None
    assert operator.get("/healthz")[0] == 200


def test_without_the_right_to_watch_the_resync_still_reconciles(cluster: Cluster, namespace: str, start: Start) -> None:
    listing = {"apiGroups": ["tiphys.io"], "resources": ["schedulingpolicies"], "verbs": ["list"]}
    operator = start(rules=[listing, *(rule for rule in RULES if rule["resources"] != ["schedulingpolicies"])], RESYNC_S="1")
    create_policy(cluster.api, "p", namespace)
    wait_reason(cluster.api, namespace, "p", "Ready", "Accepted")
    cluster.api.patch(policies_path(namespace, "p"), {"spec": {"mode": "Off"}})
    wait_reason(cluster.api, namespace, "p", "Ready", "Disabled")
    assert "RBAC denies watch schedulingpolicies" in operator.log.read_text()
    assert operator.metric("tiphys_operator_last_event_timestamp_seconds") == 0


def test_unroute_removes_the_routing_policy_and_names_who_would_be_stranded(cluster: Cluster, namespace: str) -> None:
    name = f"routing-{namespace}"
    cluster.apply(ROUTING.replace("NAME", name))
    deployment = {
        "metadata": {"name": "still-ours"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": pod("x", "tiphys")["spec"]},
        },
    }
    cron = {
        "metadata": {"name": "nightly"},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"spec": {"template": {"spec": pod("x", "tiphys")["spec"] | {"restartPolicy": "Never"}}}},
        },
    }
    cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    cluster.api.create(f"/apis/batch/v1/namespaces/{namespace}/cronjobs", cron)
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("stranded", "tiphys"))
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod("elsewhere", "nobody"))

    def run() -> str:
        command = [sys.executable, "-m", "tiphys_operator.unroute", "--routing-name", name]
        environment = {"KUBECONFIG": str(cluster.kubeconfig), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stderr

    told = run()
    assert f"removed MutatingAdmissionPolicyBinding {name}" in told
    assert f"removed MutatingAdmissionPolicy {name}" in told
    assert f"Deployment {namespace}/still-ours" in told
    assert f"CronJob {namespace}/nightly" in told
    assert f"Pod {namespace}/stranded" in told
    assert "elsewhere" not in told
    assert "ReplicaSet" not in told
    again = run()
    assert "removed" not in again
    assert name not in cluster.kubectl("get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--output=name")


ROUTING = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {tiphys.io/route: never-in-this-test}}
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration: {expression: 'Object{spec: Object.spec{schedulerName: "tiphys"}}'}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
"""
