"""SchedulingPolicies for end-to-end tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until
from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_models.api.resources import RESOURCES
from tiphys_testbed.cluster.base import Cluster

CRDS = Path(__file__).parents[1] / "manifests" / "crds"
CRD_FILE = CRDS / "tiphys.io_schedulingpolicies.yaml"
GROUP_PATH = "/apis/tiphys.io/v1alpha1"
REACTION_S = 20.0


def install_crd(cluster: Cluster) -> None:
    """Apply the CRDs and wait until they are served; nothing to do if they are."""
    for file in sorted(CRDS.glob("*.yaml")):
        cluster.apply(file.read_text())

    def served() -> bool:
        try:
            for plural in (resource.plural for resource in RESOURCES):
                cluster.api.get(f"{GROUP_PATH}/{plural}", limit=1)
        except RequestRefused as error:
            if error.status in (404, 503):
                return False
            raise
        return True

    wait_until(served, 30, "all kinds served")


def policies_path(namespace: str, name: str = "") -> str:
    """Of one policy or of all of a namespace."""
    return f"{GROUP_PATH}/namespaces/{namespace}/schedulingpolicies" + (f"/{name}" if name else "")


def policy(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """An object to create."""
    return {
        "apiVersion": "tiphys.io/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def create_policy(api: ApiClient, name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """Create one."""
    return api.create(policies_path(namespace), policy(name, namespace, **spec))


def condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    """A condition of an object; empty if it has none of that type."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return {}


def reason(api: ApiClient, namespace: str, name: str, kind: str) -> str:
    """Of a condition of a policy."""
    found: str = condition(api.get(policies_path(namespace, name)), kind).get("reason", "")
    return found


def wait_reason(api: ApiClient, namespace: str, name: str, kind: str, wanted: str, deadline_s: float = REACTION_S) -> None:
    """Until a condition of a policy has it."""
    try:
        wait_until(lambda: reason(api, namespace, name, kind) == wanted, deadline_s, f"{name}: {kind} {wanted}")
    except pytest.fail.Exception as failure:
        pytest.fail(f"{failure}; it is {api.get(policies_path(namespace, name)).get('status')}")


def events(api: ApiClient, namespace: str, name: str) -> set[str]:
    """Reasons of the Events of a policy."""
    fields = f"involvedObject.name={name},involvedObject.kind=SchedulingPolicy"
    return {event["reason"] for event in api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=fields)}
