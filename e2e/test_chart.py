"""The chart against a real API server: strict dry-run of every mode, routing that routes, an uninstall that frees."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.chart.rendering import MODES, NAMESPACE, Render, render, render_mode, values_of

from e2e.conftest import wait_until
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_testbed.cluster.base import Cluster

ROUTING = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}


@pytest.fixture(scope="module")
def release_namespace(api: ApiClient) -> Iterator[str]:
    """The namespace the chart is rendered for, with the restricted profile enforced."""
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": RESTRICTED}})
    path = f"/api/v1/namespaces/{NAMESPACE}"
    wait_until(lambda: bool(api.items(f"{path}/serviceaccounts")), 30, "ServiceAccount of the release namespace")
    yield NAMESPACE
    api.delete(path)


@pytest.fixture(scope="module")
def monitoring_crds(api: ApiClient) -> Iterator[None]:
    """The kinds of prometheus-operator, without their schemas: what is checked is that everything else is accepted beside them."""
    names = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
    made = []
    for kind, plural in names.items():
        name = f"{plural}.monitoring.coreos.com"
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [version],
            },
        }
        try:
            api.create(CRDS, body)
            made.append(name)
        except RequestRefused as error:
            if error.status != 409:  # an existing cluster has the real ones
                raise
        wait_until(lambda name=name: _established(api, name), 30, f"CustomResourceDefinition {name}")  # type: ignore[misc]
    yield
    for name in made:
        api.delete(f"{CRDS}/{name}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("release_namespace", "monitoring_crds")
def test_every_mode_passes_a_strict_dry_run_on_the_server(cluster: Cluster, mode: str) -> None:
    if mode == "routing":
        need_routing(cluster.api)
    objects = render(values_of(mode), "--kube-version", cluster.version.removeprefix("v")).objects
    for place in {item["metadata"].get("namespace", NAMESPACE) for item in objects} - {NAMESPACE, "kube-system"}:
        cluster.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}))
    text = yaml.safe_dump_all(objects)
    answer = cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "--output=name", "-f", "-", stdin=text)
    assert len(answer.split()) == len(objects)


@pytest.mark.usefixtures("release_namespace")
@pytest.mark.parametrize("mode", MODES)
def test_pods_of_every_mode_are_admitted_by_the_restricted_profile(cluster: Cluster, mode: str) -> None:
    # A Deployment is never refused by pod security, only its pods are: so make the pods, dry.
    for name, spec in render_mode(mode).pod_specs().items():
        metadata = {"name": f"{name}-check", "namespace": NAMESPACE}
        # The release is not installed: its ServiceAccounts do not exist.
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "serviceAccountName": "default"}}
        answer = cluster.kubectl("create", "--dry-run=server", "--output=name", "-f", "-", stdin=json.dumps(body))
        assert answer.strip() == f"pod/{name}-check"


@pytest.fixture
def routed(cluster: Cluster, api: ApiClient) -> Iterator[Render]:
    """The routing policy of the chart, applied and in force."""
    need_routing(api)
    rendered = render(values_of("routing"))
    for kind in ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"):
        cluster.apply(yaml.safe_dump(rendered.one(kind, "tiphys-routing")))
    yield rendered
    for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        _delete_if_there(api, f"{ROUTING}/{plural}/tiphys-routing")


def test_routing_takes_pods_of_labelled_namespaces_and_no_others(routed: Render, api: ApiClient, namespace: str) -> None:
    assert routed.of("MutatingAdmissionPolicy")
    _label(api, namespace, "enabled")
    # The API server learns of a policy some hundred milliseconds later.
    wait_until(lambda: _scheduler_of(api, namespace, {}) == "tiphys", 30, "a pod of a labelled namespace is routed")

    assert _scheduler_of(api, namespace, {"schedulerName": "default-scheduler"}) == "tiphys"
    assert _scheduler_of(api, namespace, {"schedulerName": "another"}) == "another"
    assert _scheduler_of(api, namespace, {"nodeName": "some-node"}) == "default-scheduler"
    assert _scheduler_of(api, namespace, {}, labels={"tiphys.io/route": "disabled"}) == "default-scheduler"
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "0c0ffee0-0000-4000-8000-000000000000"}
    assert _scheduler_of(api, namespace, {}, owner=daemon) == "default-scheduler"
    assert _scheduler_of(api, "default", {}) == "default-scheduler"

    _label(api, namespace, None)
    wait_until(lambda: _scheduler_of(api, namespace, {}) == "default-scheduler", 30, "routing ends with the label")


@pytest.mark.usefixtures("routed")
def test_routing_leaves_kube_system_and_the_release_namespace_alone_even_when_labelled(
    api: ApiClient, namespace: str, release_namespace: str
) -> None:
    for name in ("kube-system", release_namespace, namespace):
        _label(api, name, "enabled")
    try:
        wait_until(lambda: _scheduler_of(api, namespace, {}) == "tiphys", 30, "a pod of a labelled namespace is routed")
        assert _scheduler_of(api, "kube-system", {}) == "default-scheduler"
        assert _scheduler_of(api, release_namespace, {}) == "default-scheduler"
    finally:
        for name in ("kube-system", release_namespace):
            _label(api, name, None)


def need_routing(api: ApiClient) -> None:
    """Skip where the API server does not serve what routing needs."""
    if not serves_routing(api):
        pytest.skip("MutatingAdmissionPolicy v1 is served from Kubernetes 1.36 on")


def serves_routing(api: ApiClient) -> bool:
    """Whether MutatingAdmissionPolicy is served in v1."""
    return any(resource["kind"] == "MutatingAdmissionPolicy" for resource in api.get(ROUTING)["resources"])


def _established(api: ApiClient, name: str) -> bool:
    conditions = api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _label(api: ApiClient, namespace: str, value: str | None) -> None:
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"tiphys.io/route": value}}})


def _scheduler_of(
    api: ApiClient, namespace: str, spec: dict[str, Any], labels: dict[str, str] | None = None, owner: dict[str, str] | None = None
) -> str:
    """The scheduler a new pod would get: a create that the API server carries through admission and then drops."""
    security = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "main", "image": "registry.example/app:1", "securityContext": security}
    metadata: dict[str, Any] = {"generateName": "routing-", "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = [owner]
    body = {"metadata": metadata, "spec": {"containers": [container], **spec}}
    return str(api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)["spec"]["schedulerName"])


def _delete_if_there(api: ApiClient, path: str) -> None:
    try:
        api.delete(path)
    except RequestRefused as error:
        if error.status != 404:
            raise
