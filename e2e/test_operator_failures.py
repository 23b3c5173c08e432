"""Operators that are killed, frozen, cut off or short of a right: one leads, and the next life goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.conftest import wait_until
from e2e.operators import ACCOUNT, RULES, StartOperator, leaders, operators
from e2e.policies import REACTION_S, condition, create_policy, events, install_crd, policies_path, reason, wait_reason
from tiphys_cli.kube.api import ApiClient
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.cluster.local import LocalCluster

LEASE_S = 15.0


@pytest.fixture(scope="module", autouse=True)
def crd(cluster: Cluster) -> None:
    install_crd(cluster)


@pytest.fixture
def start(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[StartOperator]:
    with operators(cluster, f"{namespace}-sys", tmp_path) as run:
        yield run


def test_an_operator_killed_and_started_again_goes_on_where_it_was(api: ApiClient, namespace: str, start: StartOperator) -> None:
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


def test_a_stopped_leader_hands_over_at_once_and_exits_with_0(api: ApiClient, namespace: str, start: StartOperator) -> None:
    first = start("operator-0")
    wait_until(lambda: first.leads, REACTION_S, "the first leads")
    second = start("operator-1")
    wait_until(lambda: second.get("/readyz")[0] == 200, REACTION_S, "the second is ready as a standby")
    assert not second.leads
    assert first.stop() == 0
    wait_until(lambda: second.leads, 4, "the second leads within 4 s")
    create_policy(api, "p", namespace)
    wait_reason(api, namespace, "p", "Ready", "Accepted")


def test_of_two_operators_one_leads_and_a_killed_leader_is_replaced(api: ApiClient, namespace: str, start: StartOperator) -> None:
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


def _may_claim(cluster: Cluster, namespace: str, releases: list[str]) -> None:
    """As the chart grants it: one Lease by its name, in a place that all releases share."""
    kind, name = "rbac.authorization.k8s.io/v1", "tiphys-claim"
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name], "verbs": ["get", "create", "update"]}
    metadata = {"name": name, "namespace": namespace}
    subjects = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": release} for release in releases]
    role = {"apiVersion": kind, "kind": "Role", "metadata": metadata, "rules": [rule]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    binding = {"apiVersion": kind, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects, "roleRef": reference}
    cluster.apply(yaml.safe_dump_all([role, binding]))


def test_of_two_releases_one_acts_and_the_other_takes_over_when_it_is_gone(
    cluster: Cluster, api: ApiClient, namespace: str, tmp_path: Path
) -> None:
    blue, green = f"{namespace}-blue", f"{namespace}-green"
    _may_claim(cluster, namespace, [blue, green])
    claim = {"CLAIM_NAMESPACE": namespace, "CLAIM_NAME": "tiphys-claim"}
    with operators(cluster, blue, tmp_path) as start_blue, operators(cluster, green, tmp_path) as start_green:
        first = start_blue("blue-0", **claim)
        wait_until(lambda: first.leads, REACTION_S, "the first release leads")
        second = start_green("green-0", **claim)

        def standing_by() -> bool:
            return second.metric("tiphys_operator_other_release_active") == 1

        wait_until(lambda: second.get("/readyz")[0] == 200 and standing_by(), REACTION_S, "the second says that another release acts")
        create_policy(api, "p", namespace)
        wait_reason(api, namespace, "p", "Ready", "Accepted")
        assert all(names == ["blue-0"] for _, names in leaders([first, second], 2))
        assert second.metric('tiphys_operator_writes_total{kind="status"}') == 0
        assert f"{blue}/tiphys-operator/blue-0" in second.log.read_text(), "whose the cluster is"
        first.signal(signal.SIGKILL)
        samples = leaders([second], LEASE_S + 1.5)
        assert next((at for at, names in samples if names), None) is not None, "within a lease"
        assert second.metric("tiphys_operator_other_release_active") == 0
        create_policy(api, "later", namespace)
        wait_reason(api, namespace, "later", "Ready", "Accepted")


def test_a_frozen_leader_stops_writing_before_its_successor_starts_and_ends_when_it_thaws(
    api: ApiClient, namespace: str, start: StartOperator
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
def test_a_short_restart_of_the_api_server_is_survived(local: LocalCluster, namespace: str, start: StartOperator) -> None:
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
    local: LocalCluster, namespace: str, start: StartOperator
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
def test_a_missing_right_is_named_and_only_switches_off_what_needs_it(
    cluster: Cluster, namespace: str, start: StartOperator, lacking: str
) -> None:
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


def test_without_the_right_to_watch_the_resync_still_reconciles(cluster: Cluster, namespace: str, start: StartOperator) -> None:
    listing = {"apiGroups": ["tiphys.io"], "resources": ["schedulingpolicies"], "verbs": ["list"]}
    operator = start(rules=[listing, *(rule for rule in RULES if rule["resources"] != ["schedulingpolicies"])], RESYNC_S="1")
    create_policy(cluster.api, "p", namespace)
    wait_reason(cluster.api, namespace, "p", "Ready", "Accepted")
    cluster.api.patch(policies_path(namespace, "p"), {"spec": {"mode": "Off"}})
    wait_reason(cluster.api, namespace, "p", "Ready", "Disabled")
    assert "RBAC denies watch schedulingpolicies" in operator.log.read_text()
    assert operator.metric("tiphys_operator_last_event_timestamp_seconds") == 0
