"""Pods that may wait: who is held, who may open, and that nobody gets a right for nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.chart.rendering import CHART, MODES, NAMESPACE, Render, render, render_mode, run_helm, values_of
from tests.chart.test_rbac import OPENS, granted
from tiphys_extender.gates.process import READY_PATH
from tiphys_extender.settings import PREFIX as EXTENDER
from tiphys_extender.settings import Settings as ExtenderSettings
from tiphys_models.placement.gate import GATE, MAY_WAIT
from tiphys_operator.settings import PREFIX as OPERATOR
from tiphys_operator.settings import Settings as OperatorSettings

OFF = {"gates": {"enabled": False}}


def environment(rendered: Render, deployment: str, container: str) -> dict[str, str]:
    (found,) = [one for one in rendered.pod_specs()[deployment]["containers"] if one["name"] == container]
    return {entry["name"]: entry.get("value", "") for entry in found["env"]}


def holders_of_opens(rendered: Render) -> set[str]:
    roles = {role["metadata"]["name"] for role in rendered.of("ClusterRole") if granted(role) >= OPENS}
    return {b["subjects"][0]["name"] for b in rendered.of("ClusterRoleBinding") if b["roleRef"]["name"] in roles}


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "gates"])
def test_nobody_is_held_and_nobody_may_patch_pods_by_default(mode: str) -> None:
    rendered = render_mode(mode)
    assert holders_of_opens(rendered) == set()
    assert not [item for item in rendered.objects if item["metadata"]["labels"]["app.kubernetes.io/component"] == "gates"]
    assert "tiphys.io/opener" not in rendered.text
    assert f"{OPERATOR}GATES_ENABLED" not in environment(rendered, "tiphys-operator", "operator")


def test_those_who_may_open_gates_are_those_whom_the_fence_names() -> None:
    rendered = render_mode("gates")
    assert holders_of_opens(rendered) == {"tiphys-extender", "tiphys-operator", "tiphys-unroute"}
    (condition,) = rendered.one("ValidatingAdmissionPolicy", "tiphys-gate-openers")["spec"]["matchConditions"]
    named = [f"'system:serviceaccount:{NAMESPACE}:{name}'" for name in ("tiphys-extender", "tiphys-operator", "tiphys-unroute")]
    assert condition["expression"] == f"request.userInfo.username in [{','.join(named)}]"


def test_the_binder_that_reads_as_the_extender_does_may_open_nothing() -> None:
    rendered = render(values_of("binder") | values_of("gates"))
    assert holders_of_opens(rendered) == {"tiphys-extender", "tiphys-operator", "tiphys-unroute"}
    assert f"{EXTENDER}GATES_ENABLED" not in environment(rendered, "tiphys-binder", "binder")


def test_the_policy_holds_by_our_gate_who_has_our_label() -> None:
    spec = render_mode("gates").one("MutatingAdmissionPolicy", "tiphys-waiting")["spec"]
    assert spec["failurePolicy"] == "Ignore"
    assert spec["matchConstraints"]["objectSelector"] == {"matchLabels": {MAY_WAIT: "true"}}
    (never,) = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (never["operator"], set(never["values"])) == ("NotIn", {"kube-system", "kube-public", "kube-node-lease", NAMESPACE})
    (mutation,) = spec["mutations"]
    assert f"schedulingGates{{name: '{GATE}'}}" in mutation["applyConfiguration"]["expression"]


@pytest.mark.parametrize(
    ("values", "pods"),
    [({}, ("tiphys-scheduler", "tiphys-operator")), (values_of("mtls-service"), ("tiphys-extender", "tiphys-operator"))],
    ids=["beside-the-scheduler", "service"],
)
def test_the_policy_asks_for_the_pods_that_the_service_of_the_openers_selects(values: dict[str, object], pods: tuple[str, str]) -> None:
    rendered = render(values | values_of("gates"))
    selector = rendered.one("Service", "tiphys-openers")["spec"]["selector"]
    labels = {item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in rendered.of("Deployment")}
    assert {name for name, found in labels.items() if selector.items() <= found.items()} == set(pods)
    conditions = rendered.one("MutatingAdmissionPolicy", "tiphys-waiting")["spec"]["matchConditions"]
    (both,) = [one["expression"] for one in conditions if one["name"] == "both-openers-are-ready"]
    assert both.startswith(f"['{pods[0]}-', '{pods[1]}-'].all(")
    binding = rendered.one("MutatingAdmissionPolicyBinding", "tiphys-waiting")["spec"]["paramRef"]
    assert binding == {
        "namespace": NAMESPACE,
        "selector": {"matchLabels": {"kubernetes.io/service-name": "tiphys-openers"}},
        "parameterNotFoundAction": "Allow",
    }


def test_readiness_asks_for_gates_only_where_it_turns_no_scheduler_away() -> None:
    def asked(values: Mapping[str, object], deployment: str) -> str:
        (found,) = [one for one in render(values).pod_specs()[deployment]["containers"] if one["name"] == "extender"]
        return str(found["readinessProbe"]["httpGet"]["path"])

    assert asked(values_of("gates"), "tiphys-scheduler") == READY_PATH
    assert asked(OFF, "tiphys-scheduler") == "/readyz"
    assert asked(values_of("mtls-service") | values_of("gates"), "tiphys-extender") == "/readyz"


def test_both_openers_are_told_the_same_longest_wait_by_names_they_know() -> None:
    rendered = render({"gates": {"enabled": True, "longestWaitSeconds": 7}})
    for deployment, container, prefix, settings in (
        ("tiphys-scheduler", "extender", EXTENDER, ExtenderSettings),
        ("tiphys-operator", "operator", OPERATOR, OperatorSettings),
    ):
        found = environment(rendered, deployment, container)
        told = {name.removeprefix(prefix).lower(): value for name, value in found.items() if "GATES" in name}
        assert told == {"gates_enabled": "true", "gates_longest_wait_s": "7"}
        assert told.keys() <= settings.model_fields.keys()


def test_where_no_policy_can_hold_pods_nothing_of_it_is_rendered_and_the_notes_say_so() -> None:
    rendered = render(values_of("gates"), kube_version="1.35.8")
    assert not [item for item in rendered.objects if item["metadata"]["labels"]["app.kubernetes.io/component"] == "gates"]
    assert holders_of_opens(rendered) == set()
    assert f"{EXTENDER}GATES_ENABLED" not in environment(rendered, "tiphys-scheduler", "extender")
    served = render(values_of("gates"), "--api-versions", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", kube_version="1.35.8")
    assert served.of("MutatingAdmissionPolicy")


def test_the_notes_say_whether_pods_can_wait() -> None:
    """Without a cluster Helm goes by the version of Kubernetes that it was built with."""
    answer = run_helm("install", "tiphys", str(CHART), "--dry-run=client", "--namespace", NAMESPACE, "--set=gates.enabled=true")
    assert answer.returncode == 0, answer.stderr
    manifest, _, notes = answer.stdout.partition("NOTES:")
    held = "kind: MutatingAdmissionPolicy\n" in manifest
    assert ("may wait for a warm instance, 10 s at the most" in notes, "Pods cannot wait here" in notes) == (held, not held)


def test_the_operator_goes_on_opening_behind_its_fence_while_it_is_told_to() -> None:
    rendered = render({"gates": {"keepOpening": True}})
    assert rendered.of("MutatingAdmissionPolicy") == []
    assert holders_of_opens(rendered) == {"tiphys-operator", "tiphys-unroute"}
    assert rendered.one("ValidatingAdmissionPolicy", "tiphys-gate-openers")
    assert environment(rendered, "tiphys-operator", "operator")[f"{OPERATOR}GATES_ENABLED"] == "true"
    assert f"{EXTENDER}GATES_ENABLED" not in environment(rendered, "tiphys-scheduler", "extender")
