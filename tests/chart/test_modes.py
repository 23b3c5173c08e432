"""Every supported mode lints, renders and is well-formed; the default render is pinned."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    MODES,
    NAMESPACE,
    HelmRefusedError,
    Manifest,
    render,
    render_mode,
    render_text,
    run_helm,
    values_of,
)
from tiphys_testbed.tools.toolbox import Toolbox

SNAPSHOT = Path(__file__).parent / "default-render.yaml"
CLUSTER_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FlowSchema",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "PriorityLevelConfiguration",
}
WANTED_MODES = {
    "default",
    "mtls-service",
    "existing-secrets",
    "routing",
    "gates",
    "hints",
    "monitoring",
    "minimal",
    "ha",
    "digests",
    "binder",
    "binder-insecure",
    "trainer",
    "trainer-schedule",
    "trainer-scaling",
    "no-scaling",
    "scaling-namespaces",
    "binding",
    "no-binding",
    "status-tls",
}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def test_there_is_a_values_file_for_every_supported_mode() -> None:
    assert set(MODES) == WANTED_MODES


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_lints_without_a_warning(mode: str) -> None:
    answer = run_helm("lint", str(CHART), "--strict", "--values", str(CHART / "ci" / f"{mode}-values.yaml"), "--namespace", NAMESPACE)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "[WARNING]" not in answer.stdout


@pytest.mark.parametrize("mode", MODES)
def test_objects_are_named_once_and_placed(mode: str) -> None:
    objects = render_mode(mode).objects
    names = Counter((item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects)
    assert [name for name, count in names.items() if count > 1] == []
    for item in objects:
        where = item["metadata"].get("namespace")
        if item["kind"] in CLUSTER_KINDS:
            assert where is None, item["metadata"]["name"]
        else:
            # Elsewhere must be the binding of the role by which a scheduler reads how clients prove who they are, and all releases' one Lease.
            # So is what scaling may do where it is confined to namespaces.
            name = item["metadata"]["name"]
            elsewhere = {
                "tiphys-scheduler-authentication-reader": {"kube-system"},
                "tiphys-operator-claim": {"kube-system"},
                "tiphys-operator-scaling": {"shop", "bank"},
            }
            assert where in elsewhere.get(name, {NAMESPACE}), name


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_rendered_as_null(mode: str) -> None:
    # `annotations: null` makes GitOps tools see a difference for ever.
    for item in render_mode(mode).objects:
        nulls = [path for path, value in leaves(item) if value is None]
        assert nulls == [], f"{item['kind']} {item['metadata']['name']}"


@pytest.mark.parametrize("mode", MODES)
def test_objects_carry_the_recommended_labels(mode: str) -> None:
    for item in render_mode(mode).objects:
        labels = item["metadata"]["labels"]
        for key in ("name", "instance", "component", "version", "managed-by", "part-of"):
            assert labels[f"app.kubernetes.io/{key}"], f"{item['kind']} {item['metadata']['name']}"


@pytest.mark.parametrize("mode", MODES)
def test_selectors_match_the_pods_they_mean(mode: str) -> None:
    rendered = render_mode(mode)
    pods = {item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in rendered.of("Deployment")}

    def selected(selector: dict[str, str]) -> set[str]:
        return {name for name, labels in pods.items() if selector.items() <= labels.items()}

    for item in rendered.of("Deployment"):
        assert selected(item["spec"]["selector"]["matchLabels"]) == {item["metadata"]["name"]}
    for item in rendered.of("Service"):
        names = selected(item["spec"]["selector"])
        assert len(names) == (2 if item["metadata"]["name"] == "tiphys-openers" else 1)
        for name in names:
            ports = {port["name"] for container in rendered.pod_specs()[name]["containers"] for port in container["ports"]}
            assert {port["targetPort"] for port in item["spec"]["ports"]} <= ports, item["metadata"]["name"]
    for kind in ("PodDisruptionBudget", "NetworkPolicy"):
        for item in rendered.of(kind):
            selector = item["spec"].get("podSelector") or item["spec"]["selector"]
            wanted = (
                set()
                if item["metadata"]["name"] in ("tiphys-unroute", "tiphys-weights-check", "tiphys-trainer")
                else {item["metadata"]["name"]}
            )
            assert selected(selector["matchLabels"]) == wanted


def test_the_default_render_changes_only_on_purpose() -> None:
    """`UPDATE_SNAPSHOTS=1 pytest tests/chart` writes it anew; read the difference before you commit it."""
    text = render_text({"crds": {"enabled": False}})
    text = re.sub(r"^(  (?:token|keys\.json): ).*$", r"\1(random)", text, flags=re.MULTILINE)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert text == SNAPSHOT.read_text(encoding="utf-8")


def test_labels_of_the_user_are_on_every_object_and_pod() -> None:
    rendered = render({"commonLabels": {"team": "platform"}})
    assert all(item["metadata"]["labels"]["team"] == "platform" for item in rendered.objects)
    assert all(item["spec"]["template"]["metadata"]["labels"]["team"] == "platform" for item in rendered.of("Deployment"))


@pytest.mark.parametrize(
    ("release", "values", "prefix"),
    [
        ("tiphys", {}, "tiphys"),
        ("my-tiphys", {}, "my-tiphys"),
        ("prod", {}, "prod-tiphys"),
        ("prod", {"nameOverride": "placer"}, "prod-placer"),
        ("prod", {"fullnameOverride": "placer"}, "placer"),
    ],
)
def test_names_follow_the_release(release: str, values: Manifest, prefix: str) -> None:
    answer = run_helm("template", release, str(CHART), "--values", "-", stdin=yaml.safe_dump(values))
    names = {item["metadata"]["name"] for item in yaml.safe_load_all(answer.stdout) if item and item["kind"] == "Deployment"}
    assert names == {f"{prefix}-operator", f"{prefix}-scheduler"}


def test_notes_say_the_mode_the_next_steps_and_the_way_back() -> None:
    answer = run_helm("install", "tiphys", str(CHART), "--dry-run=client", "--namespace", NAMESPACE)
    assert answer.returncode == 0, answer.stderr
    notes = answer.stdout.partition("NOTES:")[2]
    for word in (
        "Shadow",
        "kubectl --namespace tiphys-system get pods",
        "kind: SchedulingPolicy",
        "rollback tiphys",
        "configmap tiphys-switch",
    ):
        assert word in notes


def test_kubernetes_before_1_33_is_refused() -> None:
    with pytest.raises(HelmRefusedError, match=r"incompatible with Kubernetes v1\.32\.9"):
        render(kube_version="1.32.9")


@pytest.mark.parametrize("mode", MODES)
def test_helm_3_lints_and_renders_the_same(mode: str) -> None:
    if Toolbox().find("helm3") is None:
        pytest.skip("Helm 3 is built on demand: tiphys tools build helm3")
    answer = run_helm("lint", str(CHART), "--strict", "--values", str(CHART / "ci" / f"{mode}-values.yaml"), program="helm3")
    assert answer.returncode == 0, answer.stdout + answer.stderr

    def comparable(objects: tuple[Manifest, ...]) -> list[Manifest]:
        return sorted((item for item in objects if item["kind"] != "Secret"), key=lambda item: (item["kind"], item["metadata"]["name"]))

    assert comparable(render(values_of(mode), program="helm3").objects) == comparable(render_mode(mode).objects)
