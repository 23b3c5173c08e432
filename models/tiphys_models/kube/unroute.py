"""Taking Tiphys out of the way before it goes: no new pods are routed to it or held, who is held is let go, who still names it is listed.

A pod that names a scheduler nobody runs stays Pending for ever, and `schedulerName` of a pod cannot be changed. So the admission
policies that route pods and hold them go first, and nobody is left behind a gate that nobody opens; pods and workloads that name the
scheduler by themselves are for their owners to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.backoff import patiently
from tiphys_models.kube.client import METADATA_ONLY, ApiError, KubeClient
from tiphys_models.kube.held_pods import open_all

ROUTING_NAME = "tiphys-routing"
WAITING_NAME = "tiphys-waiting"
"""The MutatingAdmissionPolicy that holds pods which may wait, and its binding."""
_ADMISSION_VERSIONS = ("v1", "v1beta1", "v1alpha1")  # GA in Kubernetes 1.36
_ADMISSION_RESOURCES = (  # the binding first: without it the policy does nothing
    ("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    ("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
)
_WORKLOADS = (
    ("apps/v1", "deployments", "Deployment"),
    ("apps/v1", "statefulsets", "StatefulSet"),
    ("apps/v1", "daemonsets", "DaemonSet"),
    ("apps/v1", "replicasets", "ReplicaSet"),
    ("batch/v1", "jobs", "Job"),
    ("batch/v1", "cronjobs", "CronJob"),
)
_NOT_FOUND = 404
_REMOVAL_S, _LIST_S = 15.0, 4.0
"""How long a busy API server is asked for each part; the hook that runs before an uninstall has a minute for all of them."""
_POLICY_LAG_S = 1.0
"""So long API servers go on obeying a policy that was deleted: each hears of it by a watch."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """An object by its kind and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class UnrouteReport:
    """What was removed and who would be stranded."""

    removed: tuple[ObjectRef, ...]
    """Objects of routing and waiting that were there (with `dry_run`: are there)."""
    opened: tuple[str, ...]
    """Pods that were held and are let go (with `dry_run`: are held), as namespace/name."""
    pending_pods: tuple[ObjectRef, ...]
    """Pods without a node that name the scheduler: delete them, their owners make new ones."""
    workloads: tuple[ObjectRef, ...]
    """Workloads whose pod template names the scheduler: remove `schedulerName` there."""
    problems: tuple[str, ...]
    """What could not be removed or listed, and why."""

    @property
    def clean(self) -> bool:
        """Whether nobody is left behind, as far as could be seen."""
        return not (self.pending_pods or self.workloads or self.problems)


async def unroute(
    client: KubeClient,
    routing_name: str = ROUTING_NAME,
    scheduler_name: str = "tiphys",
    waiting_name: str = WAITING_NAME,
    *,
    dry_run: bool = False,
) -> UnrouteReport:
    """Remove both policies, let go who is held, list who still names the scheduler. A part that fails is reported, the others go on."""
    problems: list[str] = []
    removed = [
        ObjectRef(kind, "", name)
        for name in (routing_name, waiting_name)
        for resource, kind in _ADMISSION_RESOURCES
        if await _removed(client, resource, name, problems, dry_run=dry_run)
    ]
    held_until_now = not dry_run and any(ref.name == waiting_name for ref in removed)
    release = await open_all(client, dry_run=dry_run)
    opened = {*release.opened}
    if held_until_now:
        await asyncio.sleep(_POLICY_LAG_S)
        release = await open_all(client)
        opened |= {*release.opened}
    problems += release.problems
    pods = [ref async for ref in _pending_pods(client, scheduler_name, problems)]
    workloads = [
        ref
        for api, resource, kind in _WORKLOADS
        async for ref in _workloads(client, f"/apis/{api}/{resource}", kind, scheduler_name, problems)
    ]
    return UnrouteReport(tuple(removed), tuple(sorted(opened)), tuple(sorted(pods)), tuple(sorted(workloads)), tuple(problems))


async def _removed(client: KubeClient, resource: str, name: str, problems: list[str], *, dry_run: bool) -> bool:
    """Whether the object was there, in any served version of its API."""
    for version in _ADMISSION_VERSIONS:
        try:
            path = f"/apis/admissionregistration.k8s.io/{version}/{resource}/{name}"
            await patiently(partial(client.request, "GET" if dry_run else "DELETE", path), _REMOVAL_S)
        except Unavailable as error:
            if isinstance(error, ApiError) and error.status == _NOT_FOUND:
                continue  # no such object, or no such version of the API
            problems.append(f"{resource}/{name} could not be removed: {error}")
            return False
        return True
    return False


async def _pending_pods(client: KubeClient, scheduler_name: str, problems: list[str]) -> AsyncIterator[ObjectRef]:
    fields = f"spec.schedulerName={scheduler_name},spec.nodeName=,status.phase=Pending"
    try:
        async for pod in _items(client, "/api/v1/pods", {"fieldSelector": fields}, METADATA_ONLY):
            yield _ref("Pod", pod)
    except Unavailable as error:
        problems.append(f"pods could not be listed: {error}")


async def _workloads(client: KubeClient, path: str, kind: str, scheduler_name: str, problems: list[str]) -> AsyncIterator[ObjectRef]:
    try:
        async for workload in _items(client, path):
            # what a Deployment or CronJob owns follows its owner
            if not workload["metadata"].get("ownerReferences") and _template(workload).get("schedulerName") == scheduler_name:
                yield _ref(kind, workload)
    except Unavailable as error:
        problems.append(f"{path.rsplit('/', 1)[-1]} could not be listed: {error}")


async def _items(
    client: KubeClient, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
) -> AsyncIterator[dict[str, Any]]:
    """Items of a whole list; a page that a busy API server does not give at once is asked for again."""
    token = ""
    while True:
        page = await patiently(partial(client.page, path, params, token, accept=accept), _LIST_S)
        for item in page["items"]:
            yield item
        if not (token := str(page["metadata"].get("continue") or "")):
            return


def _template(workload: dict[str, Any]) -> dict[str, Any]:
    spec = workload.get("spec") or {}
    job = (spec.get("jobTemplate") or {}).get("spec") or spec
    return (job.get("template") or {}).get("spec") or {}


def _ref(kind: str, obj: dict[str, Any]) -> ObjectRef:
    metadata = obj["metadata"]
    return ObjectRef(kind, metadata.get("namespace", ""), metadata["name"])
