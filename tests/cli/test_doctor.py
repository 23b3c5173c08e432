import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tiphys_cli.support.doctor import claim_holder, covers
from tiphys_cli.support.facts import AccessFact, DeploymentFact, ExtenderFact, Facts, Finding, LeaseFact, PolicyFact, ReleasesFact
from tiphys_cli.support.findings import diagnose, seconds_of, version_of

STATE: dict[str, Any] = {
    "ready": True,
    "nodes": 5,
    "pods": 7,
    "coverage": 1.0,
    "routes": [{"policy": "ns/main", "mode": "Active", "policyName": "faasrank", "model": "m"}],
    "models": [{"name": "m", "serves": True, "modes": ["Active"], "windowMatches": True}],
    "since": 1_000.0,
    "now": 5_000.0,
    "lastScrape": 4_990.0,
}
EXTENDER: dict[str, Any] = {
    "urlPrefix": "http://127.0.0.1:8888",
    "prioritizeVerb": "prioritize",
    "weight": 121,
    "nodeCacheCapable": True,
    "ignorable": True,
    "httpTimeout": "200ms",
}
CONFIG: dict[str, Any] = {
    "clientConnection": {"qps": 1000},
    "profiles": [{"schedulerName": "tiphys"}],
    "extenders": [EXTENDER],
}
HEALTHY = Facts(
    server_version="v1.36.3",
    namespace="tiphys-system",
    scheduler_name="tiphys",
    crd="current",
    deployments=(
        DeploymentFact("tiphys-operator", 1, 1, {"operator": "r/operator:0.1.0"}),
        DeploymentFact("tiphys-scheduler", 1, 1, {"kube-scheduler": "registry.k8s.io/kube-scheduler:v1.36.3", "extender": "r/e:0.1.0"}),
    ),
    scheduler_config=CONFIG,
    leases=(LeaseFact("tiphys-scheduler", "pod-a", 1.0, 15.0), LeaseFact("tiphys-operator", "pod-b", 1.0, 15.0)),
    missing_leases=(),
    access=(AccessFact("tiphys-scheduler", "list", "nodes", True),),
    policies=(PolicyFact("ns/main", "Active", "True", "Accepted", "", "True"),),
    pods_waiting=0,
    switch="true",
    extenders=(ExtenderFact("pod tiphys-system/s", "", STATE),),
)


def graded(facts: Facts, check: str) -> list[Finding]:
    return [finding for finding in diagnose(facts) if finding.check == check]


def config(**changes: Any) -> Facts:
    return replace(HEALTHY, scheduler_config=CONFIG | changes)


def extender(**changes: Any) -> Facts:
    return config(extenders=[EXTENDER | changes])


def state(**changes: Any) -> Facts:
    return replace(HEALTHY, extenders=(ExtenderFact("pod p", "", STATE | changes),))


@pytest.mark.parametrize(
    ("found", "grade", "said"),
    [
        (ReleasesFact("blue/tiphys-operator/", "blue/tiphys-operator/pod_1"), "OK", "no other release"),
        (ReleasesFact("blue/tiphys-operator/", None), "OK", "no other release"),
        (ReleasesFact("blue/tiphys-operator/", ""), "FAIL", "no operator acts"),
        (ReleasesFact("blue/tiphys-operator/", "green/tiphys-operator/pod_1"), "WARN", "green/tiphys-operator/pod_1"),
        (
            ReleasesFact("blue/tiphys-operator/", "blue/tiphys-operator/pod_1", ("green/tiphys-scheduler",)),
            "WARN",
            "green/tiphys-scheduler",
        ),
    ],
)
def test_another_release_in_the_cluster_is_named(found: ReleasesFact, grade: str, said: str) -> None:
    (finding,) = graded(replace(HEALTHY, releases=found), "releases")
    assert (finding.grade, said in finding.message) == (grade, True)


def test_a_healthy_installation_has_nothing_to_mend() -> None:
    findings = diagnose(HEALTHY)
    assert {finding.grade for finding in findings} == {"OK"}
    named = {finding.check for finding in findings}
    assert named >= {
        "versions",
        "crd",
        "scheduler-name",
        "qps",
        "http-timeout",
        "ca",
        "leases",
        "rbac",
        "extender",
        "readings",
        "kill-switch",
    }


FAULTS = [
    ("versions", "FAIL", replace(HEALTHY, server_version="v1.29.0")),
    ("versions", "FAIL", replace(HEALTHY, server_version="v1.34.1-gke.100")),
    ("versions", "FAIL", replace(HEALTHY, server_version="v1.38.0")),
    ("versions", "WARN", replace(HEALTHY, server_version="unknown")),
    ("crd", "FAIL", replace(HEALTHY, crd="missing")),
    ("crd", "WARN", replace(HEALTHY, crd="differs")),
    ("deployments", "FAIL", replace(HEALTHY, deployments=(DeploymentFact("tiphys-operator", 1, 0, {}),))),
    ("deployments", "WARN", replace(HEALTHY, deployments=(DeploymentFact("tiphys-operator", 2, 1, {}),))),
    ("deployments", "WARN", replace(HEALTHY, deployments=(DeploymentFact("tiphys-operator", 0, 0, {}),))),
    ("scheduler-config", "WARN", replace(HEALTHY, scheduler_config=None)),
    ("scheduler-name", "FAIL", config(profiles=[{"schedulerName": "other"}])),
    ("score-plugins", "FAIL", config(profiles=[{"schedulerName": "tiphys", "plugins": {"score": {"disabled": [{"name": "*"}]}}}])),
    ("qps", "WARN", config(clientConnection={})),
    ("extender-wiring", "FAIL", config(extenders=[])),
    ("http-timeout", "FAIL", extender(httpTimeout=None)),
    ("http-timeout", "FAIL", extender(httpTimeout="5s")),
    ("ca", "FAIL", extender(urlPrefix="https://tiphys-extender.svc:8443", enableHTTPS=True)),
    ("ca", "FAIL", extender(urlPrefix="https://tiphys-extender.svc:8443", tlsConfig={"caFile": "/ca", "insecure": True})),
    ("ca", "FAIL", extender(urlPrefix="http://tiphys-extender.svc:8080")),
    ("ignorable", "WARN", extender(ignorable=False)),
    ("node-cache", "WARN", extender(nodeCacheCapable=False)),
    ("filter-verb", "FAIL", extender(filterVerb="filter")),
    ("leases", "FAIL", replace(HEALTHY, leases=(), missing_leases=("tiphys-operator",))),
    ("leases", "FAIL", replace(HEALTHY, leases=(LeaseFact("l", "pod", 40.0, 15.0),))),
    ("leases", "FAIL", replace(HEALTHY, leases=(LeaseFact("l", "", 1.0, 15.0),))),
    ("rbac", "FAIL", replace(HEALTHY, access=(AccessFact("tiphys-operator", "patch", "schedulingpolicies/status", False),))),
    ("extender", "WARN", replace(HEALTHY, extenders=())),
    ("extender", "WARN", replace(HEALTHY, extenders=(ExtenderFact("pod p", "no permission"),))),
    ("extender", "FAIL", state(ready=False, problem="waiting for the first list of pods")),
    ("readings", "FAIL", state(coverage=0.2)),
    ("readings", "WARN", state(coverage=0.8)),
    ("models", "FAIL", state(models=[{"name": "m", "serves": False, "refused": "DigestMismatch", "message": "x"}])),
    ("models", "FAIL", state(models=[{"name": "m", "serves": True, "modes": ["Shadow"], "windowMatches": True}])),
    ("models", "WARN", state(models=[{"name": "m", "serves": True, "modes": ["Active"], "windowMatches": False}])),
    (
        "models",
        "WARN",
        state(
            models=[{"name": "m", "serves": True, "modes": ["Active"], "windowMatches": True, "refused": "DigestMismatch", "message": "x"}]
        ),
    ),
    ("metrics", "WARN", state(since=0.0, now=3_600.0, lastScrape=0.0)),
    ("metrics", "WARN", state(since=0.0, now=3_600.0, lastScrape=600.0)),
    ("kill-switch", "WARN", replace(HEALTHY, switch="false")),
    ("policies", "WARN", replace(HEALTHY, policies=())),
    ("policies", "WARN", replace(HEALTHY, policies=(PolicyFact("ns/p", "Active", "False", "DegradedToFallback", "m", "True"),))),
    ("policies", "WARN", replace(HEALTHY, policies=(PolicyFact("ns/p", "Active", "Unknown", "", "", "Unknown"),))),
    ("policies", "WARN", replace(HEALTHY, policies=(PolicyFact("ns/p", "Shadow", "True", "Accepted", "", "False"),))),
    ("waiting-pods", "WARN", replace(HEALTHY, pods_waiting=3)),
]


@pytest.mark.parametrize(("check", "grade", "facts"), FAULTS, ids=[f"{check}-{index}" for index, (check, _, _) in enumerate(FAULTS)])
def test_each_fault_is_found_and_comes_with_advice(check: str, grade: str, facts: Facts) -> None:
    found = [finding for finding in graded(facts, check) if finding.grade != "OK"]
    assert [finding.grade for finding in found][:1] == [grade]
    assert all(finding.message for finding in found)
    if check != "deployments" or grade == "FAIL":
        assert all(finding.advice for finding in found)


def test_a_fault_in_one_part_leaves_the_others_judged() -> None:
    for check, _, facts in FAULTS:
        if facts.crd == "missing" or not facts.policies or check == "policies":
            continue
        assert graded(facts, "policies"), check


def test_a_scheduler_one_minor_older_is_fine() -> None:
    assert graded(replace(HEALTHY, server_version="v1.37.0"), "versions")[0].grade == "OK"


def test_mtls_with_a_ca_is_fine() -> None:
    facts = extender(urlPrefix="https://e.svc:8443", enableHTTPS=True, tlsConfig={"caFile": "/ca.crt"})
    assert [finding.grade for finding in graded(facts, "ca")] == ["OK"]


def test_a_policy_that_reads_no_nodes_needs_no_readings() -> None:
    facts = state(coverage=0.0, routes=[{"policy": "ns/main", "policyName": "warm-first", "model": None}])
    assert not graded(facts, "readings")


@pytest.mark.parametrize(("text", "wanted"), [("200ms", 0.2), ("5s", 5.0), ("1m", 60.0), ("1m30s", None), ("", None), ("fast", None)])
def test_go_durations_of_one_unit(text: str, wanted: float | None) -> None:
    assert seconds_of(text) == (None if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(("text", "wanted"), [("v1.36.3", (1, 36)), ("1.35.8+k3s1", (1, 35)), ("v1.36.3-gke.1", (1, 36)), ("latest", None)])
def test_versions_with_what_vendors_append(text: str, wanted: tuple[int, int] | None) -> None:
    assert version_of(text) == wanted


def test_a_schema_may_have_more_than_wanted_but_not_less() -> None:
    assert covers({"a": [{"b": 1, "added": True}], "c": 2}, {"a": [{"b": 1}]})
    assert not covers({"a": [{"b": 2}]}, {"a": [{"b": 1}]})
    assert not covers({"a": []}, {"a": [{"b": 1}]})
    assert not covers(None, {"a": 1})


def test_an_extender_that_has_just_started_is_not_blamed_for_being_unread() -> None:
    assert graded(state(since=3_500.0, now=3_600.0, lastScrape=0.0), "metrics") == []


def test_nobody_reading_metrics_comes_with_the_value_to_set() -> None:
    (finding,) = graded(state(since=0.0, now=3_600.0, lastScrape=0.0), "metrics")
    assert "monitoring.namespace" in finding.advice
    (finding,) = graded(state(since=0.0, now=3_600.0, lastScrape=600.0), "metrics")
    assert "50 minutes" in finding.message


def test_a_claim_that_nobody_renews_is_nobodys() -> None:
    now = dt.datetime(2026, 11, 19, 12, 0, 0, tzinfo=dt.UTC)

    def claim(seconds_ago: float) -> dict[str, Any]:
        renewed = (now - dt.timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")
        return {"spec": {"holderIdentity": "green/tiphys-operator/pod_1", "leaseDurationSeconds": 15, "renewTime": renewed}}

    assert claim_holder(claim(29), now) == "green/tiphys-operator/pod_1"
    assert claim_holder(claim(31), now) == ""
    assert claim_holder({"spec": {"holderIdentity": "green/tiphys-operator/pod_1"}}, now) == ""
    assert claim_holder({}, now) == ""
