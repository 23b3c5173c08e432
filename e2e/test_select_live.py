"""`spec.select` on the real API server: the load changes, the policy switches, replicas agree, and a killed operator loses nothing."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from tests.chart.rendering import render

from e2e.conftest import ready_nodes, wait_until
from e2e.live import nodes_of
from e2e.operators import OperatorProcess, grant
from e2e.policies import condition, create_policy, install_crd, policies_path
from e2e.test_learned_model import grant_chart
from tiphys_cli.kube.api import ApiClient
from tiphys_models.base.facts import FUNCTION_LABEL
from tiphys_models.selection.selectors.checkpoint import unpack
from tiphys_testbed.bench.service import Extender, ExtenderOptions
from tiphys_testbed.cluster.local import LocalCluster
from tiphys_testbed.cluster.nodes import B2S, B4MS, B8MS, POOL_LABEL, SimulatedNode, create_nodes, delete_nodes, fleet
from tiphys_testbed.cluster.options import SchedulerOptions

pytestmark = [pytest.mark.needs_local, pytest.mark.needs_kwok, pytest.mark.timeout(300)]

POOL = "select"
REACTION_S = 40.0
INTERVAL_S = 2
SELECT: dict[str, Any] = {
    "by": "preview",
    "among": ["cost-lean", "energy-lean"],
    "intervalSeconds": INTERVAL_S,
    "maxSwitchesPerHour": 60,
    "weights": {"cost": 1, "energy": 1, "response": 0, "sla": 0},
}
METANET: dict[str, Any] = {
    "by": "metanet",
    "among": ["graf", "gobi", "semi-direct", "cost-lean", "energy-lean", "one-per-host"],
    "intervalSeconds": INTERVAL_S,
    "maxSwitchesPerHour": 600,
    "marginPercent": 0,  # planners that are nearly as good are told apart, too
}
LEARNED = {"graf", "gobi", "semi-direct"}
LOADS = (1, 3, 6, 8)
"""Pods that come, step by step, until the shipped weights call for another planner."""
LEASE = {"LEASE_DURATION_S": "4", "RENEW_S": "3", "RETRY_S": "0.5"}


@pytest.fixture(scope="module", autouse=True)
def nodes(local: LocalCluster) -> Iterator[list[SimulatedNode]]:
    """The test bed's three types, many small ones and one large one: what is cheap for one pod is not what is cheap for six."""
    install_crd(local)
    made = fleet(7, pool=POOL, machines=(B2S, B2S, B2S, B2S, B2S, B4MS, B8MS))
    create_nodes(local.api, made)
    names = {node.name for node in made}
    wait_until(lambda: names <= ready_nodes(local.api), 90, "simulated nodes Ready", poll_s=1.0)
    yield made
    delete_nodes(local.api, list(names))


@dataclass
class Release:
    """Two extenders and an operator with the chart's rights, and a tenant's policy."""

    cluster: LocalCluster
    own: str
    tenant: str
    nodes: list[SimulatedNode]
    operator_access: Path
    extenders: tuple[Extender, Extender]
    logs: Path

    @property
    def api(self) -> ApiClient:
        return self.cluster.api

    def operator(self, identity: str) -> OperatorProcess:
        return OperatorProcess(self.operator_access, self.own, self.logs / f"{identity}.log", identity=identity, settings=LEASE)

    def policy(self) -> dict[str, Any]:
        return self.api.get(policies_path(self.tenant, "sel"))

    def selection(self) -> dict[str, Any]:
        return dict((self.policy().get("status") or {}).get("selection") or {})

    def active(self) -> str:
        return str((self.policy().get("status") or {}).get("activePolicy"))

    def until_active(self, wanted: str) -> None:
        try:
            wait_until(lambda: self.active() == wanted, REACTION_S, f"{wanted} is active")
        except pytest.fail.Exception as failure:
            log = "".join(path.read_text()[-1500:] for path in self.logs.glob("*.log"))
            pytest.fail(f"{failure}; it is {json.dumps(self.policy().get('status'))}; {log}")

    def create(self, count: int, prefix: str) -> list[str]:
        names = [f"{prefix}-{index}" for index in range(count)]
        for name in names:
            resources = {"requests": {"cpu": "400m", "memory": "128Mi"}}
            pod = {
                "metadata": {"name": name, "labels": {FUNCTION_LABEL: "f"}},
                "spec": {
                    "schedulerName": "tiphys", "nodeSelector": {POOL_LABEL: POOL}, "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "registry.example/f:1", "resources": resources}],
                },
            }  # fmt: skip
            self.api.create(f"/api/v1/namespaces/{self.tenant}/pods", pod)
        return names

    def bind_all(self) -> None:
        """Have a scheduler of ours place what waits."""
        self.cluster.start_scheduler(
            SchedulerOptions(name="select-tiphys", scheduler_name="tiphys", extender_url=self.extenders[0].url, http_timeout_s=2.0)
        )
        try:
            wait_until(lambda: all(nodes_of(self.cluster, self.tenant).values()), 30, "all pods bound", poll_s=0.3)
        finally:
            self.cluster.stop_process("select-tiphys")

    def delete(self, *names: str) -> None:
        for name in names:
            self.api.delete(f"/api/v1/namespaces/{self.tenant}/pods/{name}")

    def ask(self, extender: Extender, uid: str) -> list[dict[str, Any]]:
        """What kube-scheduler would be told about a pod of the function."""
        metadata = {"name": uid, "namespace": self.tenant, "uid": uid, "labels": {FUNCTION_LABEL: "f"}}
        resources = {"requests": {"cpu": "400m", "memory": "128Mi"}}
        spec = {"schedulerName": "tiphys", "containers": [{"name": "main", "image": "registry.example/f:1", "resources": resources}]}
        body = {"Pod": {"metadata": metadata, "spec": spec}, "Nodes": None, "NodeNames": [node.name for node in self.nodes]}
        parts = urlsplit(extender.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
        try:
            connection.request("POST", "/prioritize", orjson.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            found: list[dict[str, Any]] = orjson.loads(answer.read())
            return found
        finally:
            connection.close()

    def answered(self, what: str) -> list[float]:
        """A counter of both extenders."""
        name, labels = what.split("|")
        key, value = labels.split("=")
        return [extender.metrics().total(f"tiphys_extender_{name}", **{key: value}) for extender in self.extenders]


@pytest.fixture
def release(local: LocalCluster, nodes: list[SimulatedNode], namespace: str, tmp_path: Path) -> Iterator[Release]:
    own, rendered = f"{namespace}-sys", render()
    local.api.create("/api/v1/namespaces", {"metadata": {"name": own}})
    local.api.create(f"/api/v1/namespaces/{own}/configmaps", {"metadata": {"name": "tiphys-selection"}})
    operator = [rendered.one(kind, "tiphys-operator")["rules"] for kind in ("ClusterRole", "Role")]
    operator_access = grant(local, own, operator[0], operator[1])
    extender_rules = [rendered.one(kind, "tiphys-extender")["rules"] for kind in ("Role", "ClusterRole")]
    access = grant_chart(local, own, "tiphys-extender", extender_rules[0], extender_rules[1])
    # who answers is asked here, not how fast a busy machine is; what was only asked must not hold slots for long
    settings = {"DEADLINE_MS": "2000", "RESERVATION_TTL_S": "3"}
    extenders = [
        Extender.start(
            local.processes, ExtenderOptions(name=f"ext-{i}-{namespace}", kubeconfig=access, own_namespace=own, settings=settings)
        )
        for i in range(2)
    ]
    try:
        for extender in extenders:
            extender.wait_ready()
        yield Release(local, own, namespace, nodes, operator_access, (extenders[0], extenders[1]), tmp_path)
    finally:
        for extender in extenders:
            extender.stop()
        local.api.delete(f"/api/v1/namespaces/{own}")


def test_the_load_changes_and_the_policy_switches_without_a_restart(release: Release) -> None:
    api, large = release.api, release.nodes[-1].name
    with release.operator("operator-0"):
        create_policy(api, "sel", release.tenant, mode="Active", select=SELECT)
        few = release.create(1, "few")
        release.until_active("cost-lean")
        many = release.create(5, "many")
        release.until_active("energy-lean")

        status = release.selection()
        assert {p["candidate"] for p in status["predictedCost"]} == set(SELECT["among"])
        switch = status["lastSwitch"]
        assert (switch["from"], switch["to"], switch["reason"]) == ("cost-lean", "energy-lean", "BestPredicted")
        assert "pods wait" in switch["message"]
        assert condition(release.policy(), "Selecting")["status"] == "True"
        events = api.items(f"/api/v1/namespaces/{release.tenant}/events", fieldSelector="involvedObject.kind=SchedulingPolicy")
        assert any(e["reason"] == "Switched" and "gives way to energy-lean" in e["message"] for e in events)

        # both replicas say the same of the same pods, by the plan and not by the fallback
        wait_until(lambda: _same_plan(release, "energy-lean"), 10, "both replicas have seen the plan")
        for turn in range(4):
            one, two = (release.ask(extender, f"asked-{turn}") for extender in release.extenders)
            assert one == two
            assert max(one, key=lambda entry: int(entry["Score"]))["Host"] == large
        assert all(count >= 4 for count in release.answered("policy_answers_total|policy=energy-lean"))

        wait_until(lambda: not any(_reserved(extender) for extender in release.extenders), 15, "what was only asked is free again")
        before = release.extenders[0].metrics()
        # a scheduler obeys it too, and what its pods cost comes back to who decided
        release.bind_all()
        outcomes = release.extenders[0].metrics()
        # the first go to the large node; for the last two another planner may have been chosen meanwhile
        assert list(nodes_of(release.cluster, release.tenant).values()).count(large) >= 3
        assert outcomes.total("tiphys_extender_answers_total", outcome="fallback") == before.total(
            "tiphys_extender_answers_total", outcome="fallback"
        )
        time.sleep(2 * INTERVAL_S)
        release.delete(*few, *many)
        wait_until(lambda: release.selection().get("learned", 0) > 0, REACTION_S, "a measured decision was learned")
        measured = release.selection()
        assert measured["measuredCost"] > 0
        assert measured["measuredCandidate"] in SELECT["among"]


def test_a_canary_of_select_gives_selector_and_rule_turns_and_extenders_follow(release: Release) -> None:
    """Six pods call for energy-lean, and the rule is cost-lean: whoever is active says which group decides."""
    canary = {"percent": 50, "blockIntervals": 3, "washOutIntervals": 1}
    turns: dict[str, str] = {}
    with release.operator("operator-0"):
        create_policy(release.api, "sel", release.tenant, mode="Active", select=SELECT | {"mode": "Shadow", "rule": "cost-lean"})
        release.create(6, "many")
        wait_until(lambda: release.selection().get("would") == "energy-lean", REACTION_S, "the selector would take another candidate")
        assert (release.active(), release.selection()["reason"]) == ("cost-lean", "Shadow")

        release.api.patch(policies_path(release.tenant, "sel"), {"spec": {"select": {"mode": "Canary", "canary": canary}}})

        def both() -> bool:
            found = release.policy().get("status") or {}
            selection = found.get("selection") or {}
            if selection.get("group") and found.get("observedGeneration") == release.policy()["metadata"]["generation"]:
                turns[selection["group"]] = found["activePolicy"]
            return len(turns) == 2

        wait_until(both, 150, "both groups have decided", poll_s=0.3)
        assert turns == {"treated": "energy-lean", "control": "cost-lean"}
        for group in ("treated", "control"):
            wait_until(lambda group=group: release.selection().get("group") == group, 120, f"{group} again", poll_s=0.2)  # type: ignore[misc]
            wait_until(lambda group=group: _same_plan(release, turns[group]), 10, "both replicas have its plan")  # type: ignore[misc]
        selection = release.selection()
        assert selection.get("switches", 0) <= 1, "turns are no switches"
        assert selection["comparison"]["treated"]["answers"] >= 2
        assert selection["comparison"]["control"]["answers"] >= 2


def test_a_killed_operator_loses_nothing(release: Release) -> None:
    api = release.api
    with release.operator("operator-0") as first:
        create_policy(api, "sel", release.tenant, mode="Active", select=SELECT)
        release.create(1, "wait")
        release.until_active("cost-lean")
        wait_until(lambda: release.selection()["interval"] >= 3, REACTION_S, "some intervals", poll_s=0.02)
        before = release.selection()
        first.signal(signal.SIGKILL)
        first.wait(5)
    left = _kept(release)
    assert left["interval"] >= before["interval"]
    with release.operator("operator-1"):
        wait_until(lambda: release.selection()["interval"] >= left["interval"] + 2, REACTION_S, "the next leader goes on")
        after, kept = release.selection(), _kept(release)
    # nothing was chosen anew: the same candidate since the same moment, the same pods in the books, the same accounts
    assert release.active() == "cost-lean"
    assert (after["lastSwitch"], after["switches"]) == (before["lastSwitch"], 0)
    assert kept["tracked"].items() >= left["tracked"].items()
    assert kept["profiles"].keys() == left["profiles"].keys()
    assert kept["learned"]


def test_metanet_switches_learned_planners_with_the_load_and_a_kill_loses_nothing(release: Release) -> None:
    api = release.api
    with release.operator("operator-0") as first:
        create_policy(api, "sel", release.tenant, mode="Active", select=METANET)
        pods, active = list[str](), list[str]()
        for step, count in enumerate(LOADS):
            pods += release.create(count, f"step-{step}")
            active.append(_settled(release))
            # both replicas score by the plan of whoever is active, and alike
            wait_until(lambda: _same_plan(release, release.active()), 10, "both replicas have seen the plan")
            if len(set(active)) > 1 and LEARNED & set(active):
                break
        status = release.selection()
        assert len(set(active)) > 1, f"{active} under all loads: {status}"
        assert LEARNED & set(active)
        assert {p["candidate"] for p in status["predictedCost"]} == set(METANET["among"])
        switch = status["lastSwitch"]
        assert (switch["from"] in METANET["among"], switch["reason"]) == (True, "BestPredicted")
        assert condition(release.policy(), "Selecting")["reason"] == "Selecting"
        first.signal(signal.SIGKILL)
        first.wait(5)
    left = _kept(release)
    assert left["interval"] >= status["interval"]
    with release.operator("operator-1"):
        wait_until(lambda: release.selection()["interval"] > left["interval"], REACTION_S, "the next leader goes on", poll_s=0.1)
        kept = _kept(release)
        assert kept["tracked"].items() >= left["tracked"].items()
        assert kept["status"]["switches"] >= left["status"]["switches"] > 0
        # what its pods cost trains the correction of the planner that was obeyed
        release.bind_all()
        time.sleep(2 * INTERVAL_S)
        release.delete(*pods)
        wait_until(lambda: release.selection().get("learned", 0) > 0, REACTION_S, "a measured decision was learned")
        assert release.selection()["measuredCandidate"] in METANET["among"]
        corrections = [unpack(memory["learned"])["counts"].sum() for memory in (left, _kept(release))]
        assert corrections[1] > corrections[0]


def _settled(release: Release) -> str:
    """Who is active once two intervals have seen what waits now."""
    since = release.selection().get("interval", 0)
    wait_until(lambda: release.selection().get("interval", 0) >= since + 2, REACTION_S, "two more intervals", poll_s=0.1)
    return release.active()


def _same_plan(release: Release, planner: str) -> bool:
    asked = [release.ask(extender, "probe") for extender in release.extenders]
    return asked[0] == asked[1] and all(count > 0 for count in release.answered(f"policy_answers_total|policy={planner}"))


def _reserved(extender: Extender) -> int:
    """Now: the metric is up to a second older."""
    return int(extender.explain("/v1/state")[1]["reservations"])


def _kept(release: Release) -> dict[str, Any]:
    """What the ConfigMap holds of the policy."""
    data = release.api.get(f"/api/v1/namespaces/{release.own}/configmaps/tiphys-selection")["data"]
    found: dict[str, Any] = json.loads(data[release.policy()["metadata"]["uid"]])
    return found
