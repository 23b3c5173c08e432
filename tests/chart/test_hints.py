"""Hints on pods: nobody may write them unless they are switched on, where they are named, and behind a fence."""

from __future__ import annotations

from ast import literal_eval

from tests.chart.rendering import NAMESPACE, Render, render, render_mode, values_of
from tests.chart.test_gates import environment
from tests.chart.test_rbac import granted
from tiphys_models.placement.hints import ANNOTATIONS, MARK
from tiphys_operator.hints.wanted import LONGEST_S
from tiphys_operator.settings import PREFIX, Settings

PATCHES = ("", "pods", "patch", ())
OPERATOR = f"'system:serviceaccount:{NAMESPACE}:tiphys-operator'"
NAMED = {"hints": {"enabled": True, "namespaces": ["shop", "bank"]}}


def of_hints(rendered: Render) -> set[tuple[str, str]]:
    component = "app.kubernetes.io/component"
    return {(item["kind"], item["metadata"]["name"]) for item in rendered.objects if item["metadata"]["labels"][component] == "hints"}


def fence(rendered: Render) -> list[str]:
    return [one["expression"] for one in rendered.one("ValidatingAdmissionPolicy", "tiphys-hint-writer")["spec"]["validations"]]


def test_by_default_nobody_may_write_hints() -> None:
    for mode in ("default", "gates"):
        rendered = render_mode(mode)
        assert of_hints(rendered) == set()
        assert not {name for name in environment(rendered, "tiphys-operator", "operator") if "HINTS" in name}
        if mode == "default":
            assert not [role for role in rendered.of("ClusterRole") if PATCHES in granted(role)]


def test_the_operator_alone_gets_the_right_and_it_stands_behind_a_fence() -> None:
    rendered = render_mode("hints")
    assert of_hints(rendered) == {
        ("ClusterRole", "tiphys-hints"),
        ("ClusterRoleBinding", "tiphys-operator-hints"),
        ("ValidatingAdmissionPolicy", "tiphys-hint-writer"),
        ("ValidatingAdmissionPolicyBinding", "tiphys-hint-writer"),
    }
    spec = rendered.one("ValidatingAdmissionPolicy", "tiphys-hint-writer")["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert [one["expression"] for one in spec["matchConditions"]] == [f"request.userInfo.username == {OPERATOR}"]
    (names,) = [one["expression"] for one in spec["variables"] if one["name"] == "names"]
    assert sorted(literal_eval(names)) == sorted([MARK, *ANNOTATIONS.values()])
    (pairs,) = [one["expression"] for one in spec["variables"] if one["name"] == "hints"]
    assert dict(literal_eval(pairs)) == {name: f"{hint}=" for hint, name in ANNOTATIONS.items()}
    assert LONGEST_S == 24 * 3600
    assert "duration('24h')" in fence(rendered)[-1]


def test_with_named_namespaces_the_right_is_in_no_others_and_the_operator_knows_them() -> None:
    rendered = render(NAMED)
    assert not [one for one in rendered.of("ClusterRoleBinding") if one["metadata"]["name"] == "tiphys-operator-hints"]
    bound = {one["metadata"]["namespace"] for one in rendered.of("RoleBinding") if one["metadata"]["name"] == "tiphys-operator-hints"}
    assert bound == {"shop", "bank"}
    assert any("request.namespace in ['shop','bank']" in one for one in fence(rendered))
    found = environment(rendered, "tiphys-operator", "operator")
    told = {name.removeprefix(PREFIX).lower(): value for name, value in found.items() if "HINTS" in name}
    assert told == {"hints": "true", "hints_namespaces": "shop,bank"}
    assert told.keys() <= Settings.model_fields.keys()


def test_without_gates_the_operator_may_touch_no_gate_and_with_them_each_fence_judges_its_own() -> None:
    alone, both = render_mode("hints"), render(values_of("hints") | values_of("gates"))
    assert "schedulingGates" not in "".join(fence(alone))
    assert "schedulingGates" in fence(both)[0]
    gates = [one["expression"] for one in both.one("ValidatingAdmissionPolicy", "tiphys-gate-openers")["spec"]["validations"]]
    assert gates[-1].count(f"(f == 'annotations' && request.userInfo.username == {OPERATOR})") == 2
    without = render_mode("gates").one("ValidatingAdmissionPolicy", "tiphys-gate-openers")["spec"]["validations"]
    assert "annotations" not in without[-1]["expression"], "where no hints are written, openers change no annotation"
    assert [one["expression"] for one in without[:-1]] == gates[:-1]
