"""Who may do what, asked of a real API server: accounts are impersonated, what every account may do is left out."""

from __future__ import annotations

from typing import Any

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.kubeconfig import Credentials, read_kubeconfig
from tiphys_testbed.cluster.base import Cluster

REVIEWS = "/apis/authorization.k8s.io/v1"
Right = tuple[str, str, str, str]
"""Verb, group, resource, and name ("" for any)."""


def rights_in(account: ApiClient, namespace: str) -> set[Right]:
    """Everything that the API server says the caller may do in a namespace, the cluster-wide included."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    status = account.create(f"{REVIEWS}/selfsubjectrulesreviews", review)["status"]
    assert not status["incomplete"], status
    urls = {(verb, "", path, "") for rule in status["nonResourceRules"] for verb in rule["verbs"] for path in rule["nonResourceURLs"]}
    return urls | {
        (verb, group, resource, name)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for group in rule.get("apiGroups") or [""]
        for resource in rule.get("resources") or []
        for name in rule.get("resourceNames") or [""]
    }


def allowed(account: ApiClient, verb: str, resource: str, namespace: str = "", group: str = "") -> bool:
    """Whether the caller may do one thing."""
    plural, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    return bool(account.create(f"{REVIEWS}/selfsubjectaccessreviews", review)["status"]["allowed"])


def who_is(account: ApiClient) -> str:
    """The name under which the API server knows the caller."""
    review: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return str(account.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]["username"])


def client_of(cluster: Cluster, token: str) -> ApiClient:
    """Requests with somebody's token."""
    admin = read_kubeconfig(cluster.kubeconfig)
    return ApiClient(Credentials(admin.server, admin.ca_pem, token=token, insecure=admin.insecure))
