"""A release whose pods may wait, beside the local control plane: its policies and accounts, and the EndpointSlices that say who is ready."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import yaml
from tests.chart.rendering import Render, render, values_of

from e2e.conftest import exists, wait_until
from e2e.test_chart_release import take_away
from tiphys_cli.kube.api import ApiClient
from tiphys_models.placement.gate import GATE, MAY_WAIT
from tiphys_testbed.cluster.base import Cluster
from tiphys_testbed.demo.openers import OPENERS, opener_slice

KINDS = (
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
)
REACTION_S = 30.0
"""The API server hears of policies and parameters some hundred milliseconds later; a busy machine takes its time."""
_HOOK = "helm.sh/hook"


@dataclass(frozen=True, slots=True)
class WaitingRelease:
    """Policies, roles and accounts of a release, without its pods."""

    cluster: Cluster
    namespace: str
    rendered: Render

    @property
    def api(self) -> ApiClient:
        """Requests as the administrator."""
        return self.cluster.api

    def account(self, name: str) -> ApiClient:
        """Requests as one of the release's service accounts."""
        return ApiClient.from_kubeconfig(self.cluster.kubeconfig_for(name, self.namespace))

    def say_ready(self, ready: Mapping[str, bool], name: str = "by-hand", family: str = "IPv4") -> None:
        """Write an EndpointSlice of the openers' Service, as the cluster would."""
        self.cluster.apply(yaml.safe_dump(opener_slice(self.namespace, ready, name, family)))

    def forget_slices(self) -> None:
        """Nobody has said anything of openers."""
        self.api.delete(f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices")

    def both_ready(self, namespace: str) -> None:
        """Both openers are ready, and the API server holds pods for it."""
        self.say_ready(dict.fromkeys(OPENERS, True))
        wait_until(lambda: self.would_hold(namespace), REACTION_S, "pods are held")

    def would_hold(self, namespace: str, body: Mapping[str, Any] | None = None) -> bool:
        """Whether a pod created now is held."""
        made = self.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", dict(body or pod("asked")))
        return GATE in gates_of(made)


@contextlib.contextmanager
def waiting_release(cluster: Cluster, values: Mapping[str, Any] | None = None) -> Iterator[WaitingRelease]:
    """Apply what the chart renders for pods that wait, in a namespace of its own; nothing of it is left."""
    home = f"waiting-{uuid4().hex[:8]}"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": home}})
    wait_until(lambda: exists(cluster.api, f"/api/v1/namespaces/{home}/serviceaccounts/default"), 30, f"ServiceAccount in {home}")
    rendered = render(values_of("gates") | dict(values or {}), "--namespace", home)
    objects = [item for kind in KINDS for item in rendered.of(kind) if _HOOK not in (item["metadata"].get("annotations") or {})]
    cluster.apply(yaml.safe_dump_all(objects))
    try:
        yield WaitingRelease(cluster, home, rendered)
    finally:
        take_away(cluster, objects)
        cluster.api.delete(f"/api/v1/namespaces/{home}")


def pod(name: str, labels: Mapping[str, str] | None = None, owner: str = "", **spec: Any) -> dict[str, Any]:
    """A pod that opted in and names our scheduler, unless told otherwise."""
    metadata: dict[str, Any] = {"name": name, "labels": {MAY_WAIT: "true"} if labels is None else dict(labels)}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": str(uuid4())}]
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    return {"metadata": metadata, "spec": {"schedulerName": "tiphys", "containers": [container]} | spec}


def held(name: str, **spec: Any) -> dict[str, Any]:
    """The same, held by its author's own hand."""
    return pod(name, schedulingGates=[{"name": GATE}], **spec)


def gates_of(obj: Mapping[str, Any]) -> list[str]:
    """Names of the gates that stand."""
    return [gate["name"] for gate in obj["spec"].get("schedulingGates") or ()]


def held_for_s(api: ApiClient, namespace: str, name: str, deadline_s: float) -> float:
    """How long a pod was held from its creation until we saw it let go, by our clock, which is the API server's."""
    made = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["metadata"]["creationTimestamp"]
    wait_until(lambda: not gates_of(api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")), deadline_s, f"{name} is let go")
    return datetime.now(UTC).timestamp() - datetime.fromisoformat(made).timestamp()


def stays(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Fail as soon as the condition does not hold, for so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        assert condition(), what
        time.sleep(0.2)
