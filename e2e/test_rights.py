"""What every container of the chart may do, by a real API server, against the written list; and that the extender's token can be replaced."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests.chart.rendering import Render, render, values_of
from tests.chart.test_rights import written

from e2e.conftest import exists, wait_until
from e2e.rights import Right, allowed, client_of, rights_in, who_is
from e2e.test_chart_release import take_away
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.model.publishing import publication, publish
from tiphys_models.artifacts.files import SHIPPED
from tiphys_models.kube.access import kubeconfig_access
from tiphys_models.kube.client import ApiError as KubeApiError
from tiphys_models.kube.client import KubeClient
from tiphys_testbed.cluster.base import Cluster

KINDS = ("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "Secret")
ADMISSION = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
MODELS = "/apis/tiphys.io/v1alpha1/namespaces/{}/learnedmodels"
REACTION_S = 30.0


@dataclass(frozen=True, slots=True)
class Release:
    """A release's accounts, roles and rules of admission, without its pods."""

    cluster: Cluster
    namespace: str
    rendered: Render

    def account(self, name: str) -> ApiClient:
        """Requests as one of its service accounts."""
        return ApiClient.from_kubeconfig(self.cluster.kubeconfig_for(name, self.namespace))


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    """Everything that can be switched on."""
    home = f"rights-{uuid4().hex[:8]}"
    path = f"/api/v1/namespaces/{home}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": home}})
    wait_until(lambda: exists(cluster.api, f"{path}/serviceaccounts/default"), 30, f"ServiceAccount in {home}")
    rendered = render(values_of("binder") | {"trainer": {"enabled": True}}, "--namespace", home)
    objects = [item for kind in (*KINDS, *ADMISSION) for item in rendered.of(kind)]
    cluster.apply(yaml.safe_dump_all(objects))
    yield Release(cluster, home, rendered)
    take_away(cluster, objects)
    cluster.api.delete(path)


def listed(entry: dict[str, Any] | None, place: str) -> set[Right]:
    """What the written list grants an account in a place: `plural.group NAME: [verbs]`."""
    found = set()
    for key, verbs in ((entry or {}).get(place) or {}).items():
        target, _, name = key.partition(" ")
        resource, _, group = target.partition(".")
        found |= {(verb, group, resource, name) for verb in verbs}
    return found


def of_cluster_roles(api: ApiClient, names: list[str]) -> set[Right]:
    """What roles grant that are the cluster's own."""
    return {
        (verb, group, resource, name)
        for role in names
        for rule in api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")["rules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or [""]
        for resource in rule.get("resources") or []
        for name in rule.get("resourceNames") or [""]
    }


@pytest.mark.parametrize("account", sorted(written()["accounts"]))
def test_an_account_may_do_what_the_list_says_and_nothing_else(cluster: Cluster, release: Release, namespace: str, account: str) -> None:
    entry = written()["accounts"][account]
    everywhere = listed(entry, "everywhere") | of_cluster_roles(cluster.api, entry.get("clusterRoles", []))
    places = {release.namespace: listed(entry, "release"), namespace: set(), "kube-system": listed(entry, "kube-system")}
    with release.account(account) as asked, release.account("default") as anybody:
        for place, more in places.items():
            found = rights_in(asked, place) - rights_in(anybody, place)
            expected = {right for right in everywhere | more if right not in rights_in(anybody, place)}
            assert found - expected == set(), f"{account} may do more in {place}"
            assert expected - found == set(), f"{account} may do less in {place}"


FORBIDDEN = (
    ("delete", "pods", ""),
    ("create", "pods/binding", ""),
    ("create", "pods", ""),
    ("create", "pods/exec", ""),
    ("patch", "pods/status", ""),
    ("update", "leases", "coordination.k8s.io"),
    ("get", "secrets", ""),
    ("list", "secrets", ""),
    ("create", "serviceaccounts/token", ""),
    ("impersonate", "users", ""),
    ("patch", "deployments", "apps"),
    ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
)


@pytest.mark.parametrize("account", ["tiphys-extender", "tiphys-trainer"])
def test_what_matters_most_is_refused_to_those_who_decide_and_learn(release: Release, namespace: str, account: str) -> None:
    with release.account(account) as asked:
        for place in (release.namespace, namespace, "kube-system"):
            got = [f"{verb} {resource}" for verb, resource, group in FORBIDDEN if allowed(asked, verb, resource, place, group)]
            assert got == [], place


def test_the_extenders_own_token_stands_for_its_account_until_its_secret_is_gone(cluster: Cluster, release: Release) -> None:
    """What SECURITY.md says of it: it does not expire, it ends with its Secret, and only another name makes another token."""
    api, secrets = cluster.api, f"/api/v1/namespaces/{release.namespace}/secrets"

    def token(name: str) -> str:
        wait_until(lambda: "token" in (api.get(f"{secrets}/{name}").get("data") or {}), REACTION_S, f"{name} is filled")
        return b64decode(api.get(f"{secrets}/{name}")["data"]["token"]).decode()

    def works(value: str) -> bool:
        with client_of(cluster, value) as client:
            try:
                return who_is(client) == f"system:serviceaccount:{release.namespace}:tiphys-extender"
            except RequestRefused as error:
                if error.status == 401:
                    return False
                raise

    first = token("tiphys-extender-account-1")
    assert works(first)
    other = render({"extender": {"accountTokenGeneration": 2}}, "--namespace", release.namespace)
    cluster.apply(yaml.safe_dump(other.one("Secret", "tiphys-extender-account-2")))
    second = token("tiphys-extender-account-2")
    assert works(second)
    api.delete(f"{secrets}/tiphys-extender-account-1")
    wait_until(lambda: not works(first), REACTION_S, "the first token is refused")
    assert works(second)
    # Made again under its old name it says the same again, without a time or a number: signed by RSA, it is the same to the last letter, and
    # whoever has copied it is back. Hence another generation.
    cluster.apply(yaml.safe_dump(release.rendered.one("Secret", "tiphys-extender-account-1")))
    again = token("tiphys-extender-account-1")
    assert again.rpartition(".")[0] == first.rpartition(".")[0]
    assert second.rpartition(".")[0] != first.rpartition(".")[0]


def model(name: str, stage: str = "candidate", config_map: str = "") -> dict[str, Any]:
    spec = {
        "policy": "faasrank",
        "stage": stage,
        "weights": {"configMap": {"name": config_map or f"{name}-0123456789ab"}},
        "sha256": "0" * 64,
        "featureSchema": "faasrank-42/1",
    }
    return {"apiVersion": "tiphys.io/v1alpha1", "kind": "LearnedModel", "metadata": {"name": name}, "spec": spec}


def bytes_of(name: str, *, immutable: bool = True, label: str = "faasrank-trained") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"tiphys.io/learned-model": label}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"card.json": "{}"}, "immutable": immutable}


def outcome(action: Any) -> int:
    """200, or the status of the refusal."""
    try:
        action()
    except RequestRefused as error:
        return int(error.status)
    return 200


@pytest.fixture
def trainer(cluster: Cluster, release: Release) -> Iterator[ApiClient]:
    """The trainer's account, once its rule is in force; nothing of it is left."""
    models = MODELS.format(release.namespace)
    with release.account("tiphys-trainer") as client:
        # The API server learns of a policy some hundred milliseconds later.
        maps = f"/api/v1/namespaces/{release.namespace}/configmaps"

        def refused(path: str, body: dict[str, Any]) -> bool:
            return outcome(lambda: client.create(f"{path}?dryRun=All", body)) == 403

        wait_until(lambda: refused(models, model("another")) and refused(maps, bytes_of("another")), REACTION_S, "the rules are in force")
        yield client
    for item in cluster.api.items(models):
        cluster.api.delete(f"{models}/{item['metadata']['name']}")


def test_the_trainer_publishes_its_own_model_as_a_candidate_and_nothing_else(release: Release, trainer: ApiClient) -> None:
    models, maps = MODELS.format(release.namespace), f"/api/v1/namespaces/{release.namespace}/configmaps"
    name, own = "faasrank-trained", "faasrank-trained-0123456789ab"
    assert outcome(lambda: trainer.create(maps, bytes_of(own))) == 200
    assert outcome(lambda: trainer.create(models, model(name))) == 200
    for stage in ("shadow", "canary", "active"):
        assert outcome(lambda stage=stage: trainer.patch(f"{models}/{name}", {"spec": {"stage": stage}})) == 403, stage
    assert outcome(lambda: trainer.create(models, model("faasrank", config_map=own))) == 403
    assert outcome(lambda: trainer.create(models, model("other", "active", own))) == 403
    assert outcome(lambda: trainer.patch(f"{models}/{name}", model(name, config_map="somebody-elses-weights"))) == 403
    # A file in the mounted volume, and the names under which bytes would be mounted or trusted.
    assert outcome(lambda: trainer.patch(f"{models}/{name}", {"spec": {"weights": {"configMap": None, "file": "a.safetensors"}}})) == 403
    for stranger in ("tiphys-models", "tiphys-prices", "kube-root-ca.crt", "faasrank-trained", f"{own}-more"):
        assert outcome(lambda stranger=stranger: trainer.create(maps, bytes_of(stranger))) == 403, stranger
    assert outcome(lambda: trainer.create(maps, bytes_of("faasrank-trained-aaaaaaaaaaaa", immutable=False))) == 403
    assert outcome(lambda: trainer.create(maps, bytes_of("faasrank-trained-bbbbbbbbbbbb", label="another"))) == 403


def test_the_api_server_finds_nothing_to_say_about_the_types_in_our_rules(cluster: Cluster, release: Release) -> None:
    """A misspelt field would show only when somebody is judged."""
    for item in release.rendered.of("ValidatingAdmissionPolicy"):
        assert type_warnings(cluster.api, item["metadata"]["name"]) == [], item["metadata"]["name"]


def type_warnings(api: ApiClient, name: str) -> list[dict[str, Any]]:
    """What the API server's check of types says of a policy, once it has been made."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    wait_until(lambda: "typeChecking" in api.get(path).get("status", {}), REACTION_S, f"types of {name} are checked")
    return list(api.get(path)["status"]["typeChecking"].get("expressionWarnings", []))


async def test_what_the_trainer_really_publishes_is_accepted(release: Release, trainer: ApiClient) -> None:
    """The command's own objects, written as the command writes them."""
    card = SHIPPED / "faasrank.json"
    access = kubeconfig_access(release.cluster.kubeconfig_for("tiphys-trainer", release.namespace))
    async with KubeClient(access, user_agent="trainer") as client:
        for _ in range(2):  # a second training with the same result
            await publish(client, publication(card, "faasrank-trained", release.namespace, "candidate"))
        with pytest.raises(KubeApiError, match="at stage candidate only"):
            await publish(client, publication(card, "faasrank-trained", release.namespace, "active"))
    found = release.cluster.api.get(f"{MODELS.format(release.namespace)}/faasrank-trained")
    assert found["spec"]["stage"] == "candidate"
    assert trainer is not None


def test_where_namespaces_are_named_the_operator_may_scale_in_those_and_nowhere_else(
    cluster: Cluster, release: Release, namespace: str
) -> None:
    home = release.namespace
    values = {"fullnameOverride": "confined", "operator": {"scaling": {"namespaces": [namespace]}}}
    rendered = render(values, "--namespace", home)
    objects = [item for kind in KINDS[1:] for item in rendered.of(kind) if item["metadata"]["name"].startswith("confined-operator")]
    cluster.apply(yaml.safe_dump_all(objects))
    try:
        with release.account("confined-operator") as operator:
            for verb, resource, group in (
                ("patch", "deployments/scale", "apps"),
                ("patch", "pods/resize", ""),
                ("get", "deployments", "apps"),
            ):
                assert allowed(operator, verb, resource, namespace, group), resource
                for place in ("default", "kube-system", home):
                    assert not allowed(operator, verb, resource, place, group), f"{resource} in {place}"
            assert allowed(operator, "patch", "scalingpolicies/status", "default", "tiphys.io"), (
                "it tells policies elsewhere that it may not"
            )
    finally:
        take_away(cluster, objects)


def test_a_model_that_a_person_has_raised_is_not_taken_back_by_the_next_training(
    cluster: Cluster, release: Release, trainer: ApiClient
) -> None:
    models = MODELS.format(release.namespace)
    path = f"{models}/faasrank-trained"
    assert outcome(lambda: trainer.create(models, model("faasrank-trained"))) == 200
    again = model("faasrank-trained", config_map="faasrank-trained-cccccccccccc")
    assert outcome(lambda: trainer.patch(path, again)) == 200, "a candidate is followed by the next"
    cluster.api.patch(path, {"spec": {"stage": "active"}})
    assert outcome(lambda: trainer.patch(path, model("faasrank-trained"))) == 403
    assert cluster.api.get(path)["spec"]["stage"] == "active"
    cluster.api.patch(path, {"spec": {"stage": "retired"}})
    assert outcome(lambda: trainer.patch(path, model("faasrank-trained"))) == 200


def test_others_are_not_held_to_the_trainers_rules(cluster: Cluster, release: Release, trainer: ApiClient) -> None:
    maps, name = f"/api/v1/namespaces/{release.namespace}/configmaps", f"free-{time.monotonic_ns()}"
    assert trainer is not None
    assert outcome(lambda: cluster.api.create(maps, {"metadata": {"name": name}, "data": {"a": "b"}})) == 200
    assert outcome(lambda: cluster.api.create(f"{MODELS.format(release.namespace)}?dryRun=All", model("any", "active"))) == 200
