"""Who may write which ScalingPolicy: with the chart's rule of admission and its roles for people, on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.chart.rendering import render

from e2e.conftest import exists, wait_until
from e2e.rights import allowed
from e2e.test_chart_release import served, take_away
from tiphys_cli.kube.api import APPLY_PATCH, ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.plane.service import policy

KINDS = ("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
ROLES = ("tiphys-view", "tiphys-edit", "tiphys-admin", "tiphys-operator")
RBAC = "rbac.authorization.k8s.io/v1"
REACTION_S = 30.0
POLICIES = [{"apiGroups": ["tiphys.io"], "resources": ["scalingpolicies"], "verbs": ["get", "list", "create", "update", "patch", "delete"]}]
SCALE = {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]}
RESIZE = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}
CHANGE = {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets"], "verbs": ["patch"]}
VERTICAL = {"minCpuMilli": 50, "maxCpuMilli": 400}


@dataclass
class Town:
    """A namespace with people of different rights in it."""

    cluster: Cluster
    namespace: str
    clients: list[ApiClient] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"/apis/tiphys.io/v1alpha1/namespaces/{self.namespace}/scalingpolicies"

    @property
    def admin(self) -> ApiClient:
        return self.cluster.api

    def person(self, *rules: dict[str, Any], role: str = "") -> ApiClient:
        """Somebody with these rules, or with one of the cluster's own roles, in this namespace."""
        name = f"person-{uuid4().hex[:6]}"
        metadata = {"name": name, "namespace": self.namespace}
        reference = {"kind": "ClusterRole" if role else "Role", "name": role or name, "apiGroup": "rbac.authorization.k8s.io"}
        objects: list[dict[str, Any]] = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}]
        if not role:
            objects.append({"apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": [*POLICIES, *rules]})
        subject = {"kind": "ServiceAccount", **metadata}
        objects.append({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata, "roleRef": reference, "subjects": [subject]})
        self.cluster.apply(yaml.safe_dump_all(objects))
        client = ApiClient.from_kubeconfig(self.cluster.kubeconfig_for(name, self.namespace))
        self.clients.append(client)
        return client

    def made(self, name: str, mode: str = "Active", **spec: Any) -> dict[str, Any]:
        """A policy of the administrator's."""
        return self.admin.create(self.path, policy(name, "web", mode, **spec))


@pytest.fixture(scope="module")
def rules(cluster: Cluster) -> Iterator[None]:
    """The chart's roles and rules of admission, in force."""
    rendered = render()
    objects = [item for kind in KINDS for item in rendered.of(kind) if _is_wanted(item)]
    objects += [item for kind in ADMISSION for item in rendered.of(kind)]
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": "tenancy-home"}})
    for item in objects:
        if "namespace" in item["metadata"]:
            item["metadata"]["namespace"] = "tenancy-home"
    cluster.apply(yaml.safe_dump_all(objects))
    path = "/apis/tiphys.io/v1alpha1/namespaces/tenancy-home/scalingpolicies"
    wait_until(lambda: served(cluster.api, path), REACTION_S, "ScalingPolicy served")
    yield
    take_away(cluster, objects)
    cluster.api.delete("/api/v1/namespaces/tenancy-home")


def _is_wanted(item: dict[str, Any]) -> bool:
    return item["kind"] == "CustomResourceDefinition" or item["metadata"]["name"] in ROLES


@pytest.fixture
def town(cluster: Cluster, rules: None, namespace: str) -> Iterator[Town]:
    """A namespace in which the rule is seen to hold."""
    made = Town(cluster, namespace)
    stranger = made.person()
    wait_until(
        lambda: refusal(lambda: stranger.create(f"{made.path}?dryRun=All", policy("p", "web", "Active"))) is not None,
        REACTION_S,
        "in force",
    )
    yield made
    for client in made.clients:
        client.close()
    for item in cluster.api.items(made.path):
        cluster.api.patch(f"{made.path}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
        if exists(cluster.api, f"{made.path}/{item['metadata']['name']}"):
            cluster.api.delete(f"{made.path}/{item['metadata']['name']}")


def refusal(action: Callable[[], object]) -> str | None:
    """What the API server said when it forbade it; None if it was done."""
    try:
        action()
    except RequestRefused as error:
        if error.status == 403:
            return str(error)
        raise
    return None


def test_a_canary_acts_and_takes_the_rights_of_an_active_policy(town: Town) -> None:
    stranger = town.person()
    canary = policy("web", "web", "Canary", canary={"percent": 1})
    said = refusal(lambda: stranger.create(town.path, canary))
    assert said is not None
    assert "a policy of yours that acts may not either" in said
    assert refusal(lambda: stranger.create(town.path, policy("web", "web", "Shadow"))) is None
    assert refusal(lambda: stranger.patch(f"{town.path}/web", {"spec": {"mode": "Canary", "canary": {"percent": 1}}})) is not None


def test_an_ordinary_editor_creates_changes_and_deletes_an_active_policy(town: Town) -> None:
    editor = town.person(role="edit")
    # The controller that aggregates roles takes a moment after the chart's have come.
    wait_until(lambda: allowed(editor, "create", "scalingpolicies", town.namespace, "tiphys.io"), REACTION_S, "edit is aggregated")
    wait_until(lambda: allowed(editor, "patch", "pods/resize", town.namespace), REACTION_S, "edit resizes pods")
    path = f"{town.path}/web"
    assert refusal(lambda: editor.create(town.path, policy("web", "web", "Active", vertical=VERTICAL))) is None
    assert refusal(lambda: editor.patch(path, {"spec": {"horizontal": {"maxReplicas": 6}}})) is None
    assert refusal(lambda: editor.patch(path, {"metadata": {"annotations": {"tiphys.io/paused": "true"}}})) is None
    assert refusal(lambda: editor.delete(path)) is None
    assert not allowed(editor, "patch", "scalingpolicies/status", town.namespace, "tiphys.io"), "statuses are the operator's"
    assert not allowed(editor, "create", "learnedmodels", town.namespace, "tiphys.io"), "models decide for others, too"


def test_viewers_look_and_admins_publish_models(town: Town) -> None:
    viewer, admin = town.person(role="view"), town.person(role="admin")
    wait_until(lambda: allowed(viewer, "list", "scalingpolicies", town.namespace, "tiphys.io"), REACTION_S, "view is aggregated")
    wait_until(lambda: allowed(admin, "create", "learnedmodels", town.namespace, "tiphys.io"), REACTION_S, "admin is aggregated")
    assert not allowed(viewer, "create", "scalingpolicies", town.namespace, "tiphys.io")
    assert allowed(admin, "create", "scalingpolicies", town.namespace, "tiphys.io")


@pytest.mark.parametrize(
    ("held", "spec", "word"),
    [
        ([], {"vertical": None}, "deployments/scale of web"),
        ([RESIZE, CHANGE], {"vertical": None}, "deployments/scale of web"),
        ([SCALE], {}, "pods/resize"),
        ([], {"horizontal": None}, "pods/resize"),
        ([{**SCALE, "resourceNames": ["another"]}], {"vertical": None}, "deployments/scale of web"),
        ([SCALE], {"vertical": None, "targetRef": {"kind": "StatefulSet", "name": "web"}}, "statefulsets/scale of web"),
    ],
    ids=["nothing", "horizontal-without-scale", "both-without-resize", "vertical-without-resize", "another-workload", "another-kind"],
)
def test_without_the_right_an_active_policy_is_forbidden_and_says_which(
    town: Town, held: list[dict[str, Any]], spec: dict[str, Any], word: str
) -> None:
    body = policy("web", "web", "Active", vertical=VERTICAL)
    body["spec"] = {key: value for key, value in (body["spec"] | spec).items() if value is not None}
    said = refusal(lambda: town.person(*held).create(town.path, body))
    assert said is not None
    assert word in said
    assert town.namespace in said


@pytest.mark.parametrize(
    ("held", "spec"),
    [
        ([SCALE], {"vertical": None}),
        ([{**SCALE, "resourceNames": ["web"]}], {"vertical": None}),
        ([RESIZE], {"horizontal": None}),
        ([CHANGE], {"horizontal": None}),
        ([SCALE, RESIZE], {}),
        ([SCALE, CHANGE], {}),
    ],
    ids=["scale", "scale-of-this-one", "resize", "template", "scale-and-resize", "scale-and-template"],
)
def test_with_the_rights_it_takes_by_hand_it_is_accepted(town: Town, held: list[dict[str, Any]], spec: dict[str, Any]) -> None:
    body = policy("web", "web", "Active", vertical=VERTICAL)
    body["spec"] = {key: value for key, value in (body["spec"] | spec).items() if value is not None}
    assert refusal(lambda: town.person(*held).create(town.path, body)) is None


def test_whoever_lacks_the_right_may_recommend_and_may_stop_what_acts(town: Town) -> None:
    writer = town.person()
    assert refusal(lambda: writer.create(town.path, policy("mine", "web", "Recommend"))) is None
    assert refusal(lambda: writer.patch(f"{town.path}/mine", {"spec": {"mode": "Active"}})) is not None
    town.made("theirs")
    assert refusal(lambda: writer.patch(f"{town.path}/theirs", {"spec": {"horizontal": {"maxReplicas": 9}}})) is not None
    assert refusal(lambda: writer.patch(f"{town.path}/theirs", {"spec": {"targetRef": {"name": "bank"}}})) is not None
    assert refusal(lambda: writer.patch(f"{town.path}/theirs", {"spec": {"mode": "Recommend"}})) is None
    town.made("deleted")
    assert refusal(lambda: writer.delete(f"{town.path}/deleted")) is None


@pytest.mark.parametrize("annotation", ["tiphys.io/paused", "tiphys.io/retry-agent"])
def test_an_annotation_that_acts_takes_the_right_too(town: Town, annotation: str) -> None:
    town.made("web")
    path, writer, scaler = f"{town.path}/web", town.person(), town.person(SCALE, RESIZE)

    def annotated(value: str | None) -> dict[str, Any]:
        return {"metadata": {"annotations": {annotation: value}}}

    assert refusal(lambda: writer.patch(path, annotated("true"))) is not None
    assert refusal(lambda: scaler.patch(path, annotated("true"))) is None
    assert refusal(lambda: writer.patch(path, annotated("false"))) is not None
    assert refusal(lambda: writer.patch(path, annotated(None))) is not None, "to take it away acts as well"
    assert refusal(lambda: writer.patch(path, {"metadata": {"annotations": {"team": "a"}}})) is None


def test_an_unchanged_apply_by_a_gitops_account_passes_and_a_changed_one_does_not(town: Town) -> None:
    town.made("web")
    gitops, body = town.person(), policy("web", "web", "Active")

    def apply(spec: dict[str, Any]) -> object:
        wanted = {**body, "spec": {**body["spec"], **spec}}
        return gitops.patch(f"{town.path}/web", wanted, APPLY_PATCH, fieldManager="gitops", force="true")

    assert refusal(lambda: apply({})) is None
    assert refusal(lambda: apply({})) is None
    assert refusal(lambda: apply({"horizontal": {"minReplicas": 1, "maxReplicas": 9}})) is not None


def test_statuses_finalizers_and_labels_pass_without_the_right(town: Town) -> None:
    """What operators, garbage collectors and backup tools write on somebody else's policy."""
    status = {"apiGroups": ["tiphys.io"], "resources": ["scalingpolicies/status"], "verbs": ["patch"]}
    operator, path = town.person(status), f"{town.path}/web"
    town.made("web")
    written = {
        "status": {"observedGeneration": 1, "desired": {"replicas": 2, "cpuMilli": 100}},
        "spec": {"horizontal": {"maxReplicas": 99}},
    }
    assert refusal(lambda: operator.patch(f"{path}/status", written)) is None
    assert town.admin.get(path)["spec"]["horizontal"]["maxReplicas"] == 4, "a status write changes no spec"
    for metadata in ({"finalizers": ["example.com/wait"]}, {"labels": {"team": "a"}}, {"finalizers": None}):
        assert refusal(lambda metadata=metadata: operator.patch(path, {"metadata": metadata})) is None, metadata  # type: ignore[misc]


def test_a_finalizer_can_be_taken_off_a_policy_that_is_being_deleted(town: Town) -> None:
    town.made("web")
    writer, path = town.person(), f"{town.path}/web"
    assert refusal(lambda: writer.patch(path, {"metadata": {"finalizers": ["example.com/wait"]}})) is None
    writer.delete(path)
    assert town.admin.get(path)["metadata"]["deletionTimestamp"]
    assert refusal(lambda: writer.patch(path, {"metadata": {"finalizers": None}})) is None
    wait_until(lambda: not exists(town.admin, path), REACTION_S, "gone")
