"""`tiphys doctor`, the asking half: reads an installation through the API server and its extenders' loopback listeners."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from tiphys_cli.kube.api import ApiClient
from tiphys_cli.kube.errors import RequestRefused
from tiphys_cli.support.extenders import DirectDoor, Door, ForwardedDoor
from tiphys_cli.support.facts import AccessFact, DeploymentFact, ExtenderFact, Facts, KindFact, LeaseFact, PolicyFact, ReleasesFact
from tiphys_cli.support.installation import Installation, extender_pods, find_installation, other_schedulers
from tiphys_cli.support.kinds import kind_fact
from tiphys_models.api.base import GROUP, VERSION
from tiphys_models.api.crd import crd
from tiphys_models.api.learned_model import PLURAL as MODELS
from tiphys_models.api.resources import RESOURCES
from tiphys_models.api.routing import DEFAULT_SCHEDULER_NAME
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_models.base.errors import InvalidInput, TiphysError

_NOT_FOUND, _FORBIDDEN = 404, 403
_SCHEDULER_NAME, _CLAIM = "TIPHYS_EXTENDER_SCHEDULER_NAME", "tiphys-operator"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def gather(api: ApiClient, kubeconfig: Path, namespace: str, extender_url: str) -> Facts:
    """All facts; InvalidInput if there is no installation to look at."""
    installation = find_installation(api, namespace)
    if installation is None:
        where = f"namespace {namespace}" if namespace else "this cluster"
        raise InvalidInput(f"no Tiphys found in {where} (no Deployment with the chart's labels): install the chart, or name its namespace")
    config = _scheduler_config(api, installation)
    scheduler_name = _scheduler_name(installation)
    leases, missing = _leases(api, installation)
    objects, unlisted = _objects(api, dt.datetime.now(dt.UTC).timestamp())
    return Facts(
        server_version=str(api.get("/version")["gitVersion"]),
        namespace=installation.namespace,
        scheduler_name=scheduler_name,
        crd=_crd(api),
        deployments=tuple(_deployment(d) for d in installation.deployments),
        scheduler_config=config,
        leases=leases,
        missing_leases=missing,
        access=_access(api, installation),
        policies=_policies(api),
        pods_waiting=_waiting(api, scheduler_name),
        switch=_switch(api, installation),
        extenders=tuple(_state(door) for door in _doors(api, kubeconfig, installation, extender_url)),
        releases=_releases(api, installation, scheduler_name),
        objects=objects,
        unlisted=unlisted,
    )


def _doors(api: ApiClient, kubeconfig: Path, installation: Installation, extender_url: str) -> Sequence[Door]:
    if extender_url:
        return [DirectDoor(extender_url)]
    return [ForwardedDoor(kubeconfig, installation.namespace, pod) for pod in extender_pods(api, installation)]


def _state(door: Door) -> ExtenderFact:
    try:
        status, state = door.ask("/v1/state")
    except TiphysError as error:
        return ExtenderFact(door.label, str(error))
    if status != 200 or not isinstance(state, dict):
        return ExtenderFact(door.label, f"it answered {status}")
    return ExtenderFact(door.label, state=state)


def _maybe(api: ApiClient, path: str) -> dict[str, Any] | None:
    try:
        return api.get(path)
    except RequestRefused as error:
        if error.status == _NOT_FOUND:
            return None
        raise


def _crd(api: ApiClient) -> Literal["current", "differs", "missing"]:
    """The worst state of all CRDs."""
    current = True
    for resource in RESOURCES:
        found = _maybe(api, f"{_CRDS}/{resource.crd_name}")
        if found is None:
            return "missing"
        served = {v["name"]: v.get("schema") for v in found["spec"]["versions"]}
        current = current and covers(served.get(VERSION), crd(of=resource)["spec"]["versions"][0]["schema"])
    return "current" if current else "differs"


def covers(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is found, at any depth: the API server may have added defaults of its own."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(covers(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(covers, found, wanted))
    return bool(found == wanted)


def _deployment(obj: Mapping[str, Any]) -> DeploymentFact:
    containers = obj["spec"]["template"]["spec"]["containers"]
    return DeploymentFact(
        obj["metadata"]["name"],
        int(obj["spec"].get("replicas", 1)),
        int((obj.get("status") or {}).get("readyReplicas") or 0),
        {c["name"]: c["image"] for c in containers},
    )


def _scheduler_config(api: ApiClient, installation: Installation) -> Mapping[str, Any] | None:
    path = f"/api/v1/namespaces/{installation.namespace}/configmaps/{installation.name('scheduler-config')}"
    found = _maybe(api, path)
    for text in ((found or {}).get("data") or {}).values():
        document = yaml.safe_load(text)
        if isinstance(document, dict) and document.get("kind") == "KubeSchedulerConfiguration":
            return document
    return None


def _scheduler_name(installation: Installation) -> str:
    """The scheduler's name as the extender's environment in the pod template gives it."""
    return next((value for d in installation.deployments if (value := _told(d, _SCHEDULER_NAME))), DEFAULT_SCHEDULER_NAME)


def _told(deployment: Mapping[str, Any], name: str) -> str:
    """A variable in the pod template; empty without it."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable.get("name") == name and variable.get("value"):
                return str(variable["value"])
    return ""


def _releases(api: ApiClient, installation: Installation, scheduler_name: str) -> ReleasesFact:
    operator = installation.deployment("operator")
    where = "" if operator is None else _told(operator, "TIPHYS_OPERATOR_CLAIM_NAMESPACE")
    claim = None
    if where:
        found = _maybe(api, f"/apis/coordination.k8s.io/v1/namespaces/{where}/leases/{_CLAIM}") or {}
        claim = claim_holder(found, dt.datetime.now(dt.UTC))
    others = [d["metadata"] for d in other_schedulers(api, installation) if (_told(d, _SCHEDULER_NAME) or scheduler_name) == scheduler_name]
    return ReleasesFact(
        ours=f"{installation.namespace}/{installation.name('operator')}/",
        claim=claim,
        schedulers=tuple(sorted(f"{other['namespace']}/{other['name']}" for other in others)),
    )


def claim_holder(lease: Mapping[str, Any], now: dt.datetime) -> str:
    """The holder of a claim; empty if it has not been renewed for twice its duration: the holder is gone then."""
    spec = lease.get("spec") or {}
    return str(spec.get("holderIdentity") or "") if _age_s(spec, now) <= 2 * float(spec.get("leaseDurationSeconds") or 15) else ""


def _age_s(lease_spec: Mapping[str, Any], now: dt.datetime) -> float:
    renewed = lease_spec.get("renewTime")
    return (now - dt.datetime.fromisoformat(renewed)).total_seconds() if renewed else float("inf")


def _leases(api: ApiClient, installation: Installation) -> tuple[tuple[LeaseFact, ...], tuple[str, ...]]:
    found, missing = [], []
    now = dt.datetime.now(dt.UTC)
    for component in ("scheduler", "operator"):
        if installation.deployment(component) is None:
            continue
        name = installation.name(component)
        lease = _maybe(api, f"/apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases/{name}")
        if lease is None:
            missing.append(name)
            continue
        spec = lease.get("spec") or {}
        found.append(LeaseFact(name, spec.get("holderIdentity") or "", _age_s(spec, now), float(spec.get("leaseDurationSeconds") or 15)))
    return tuple(found), tuple(missing)


def _access(api: ApiClient, installation: Installation) -> tuple[AccessFact, ...]:
    """What the services do every day, asked of the API server for their service accounts."""
    own, scheduler, operator = installation.namespace, installation.name("scheduler"), installation.name("operator")
    extender = installation.name("extender")
    reads = ("list", "watch")
    wanted: list[tuple[str, str, str, str, str, str]] = []  # account, verb, group, resource, namespace, name
    wanted += [(extender, verb, "", resource, "", "") for resource in ("nodes", "pods") for verb in reads]
    wanted += [(extender, verb, GROUP, PLURAL, "", "") for verb in reads]
    wanted += [(extender, "watch", "", "configmaps", own, installation.name("switch"))]
    wanted += [(operator, verb, GROUP, PLURAL, "", "") for verb in reads]
    wanted += [(operator, "patch", GROUP, f"{PLURAL}/status", "", ""), (operator, "list", "", "pods", "", "")]
    wanted += [(operator, "create", "", "events", "", "")]
    wanted += [(extender, verb, GROUP, MODELS, own, "") for verb in reads] + [(operator, verb, GROUP, MODELS, "", "") for verb in reads]
    wanted += [(account, "get", "", "configmaps", own, "") for account in (extender, operator)]
    wanted += [(operator, "patch", GROUP, f"{MODELS}/status", "", "")]
    wanted += [(operator, "update", "coordination.k8s.io", "leases", own, operator)]
    if installation.deployment("scheduler") is not None:
        wanted += [(scheduler, "create", "", "pods/binding", "", ""), (scheduler, "list", "", "nodes", "", "")]
        wanted += [(scheduler, "update", "coordination.k8s.io", "leases", own, scheduler)]
    return tuple(_review(api, own, *entry) for entry in wanted)


def _review(api: ApiClient, own: str, account: str, verb: str, group: str, resource: str, namespace: str, name: str) -> AccessFact:
    kind, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "subresource": part, "namespace": namespace, "name": name}
    spec = {
        "user": f"system:serviceaccount:{own}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"],
        "resourceAttributes": {key: value for key, value in attributes.items() if value},
    }
    answer = api.create(_REVIEWS, {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
    shown = f"{resource}.{group}" if group else resource
    return AccessFact(account, verb, f"{shown} {name}".strip(), bool(answer["status"].get("allowed")))


def _policies(api: ApiClient) -> tuple[PolicyFact, ...]:
    return tuple(_policy(obj) for obj in _all(api, PLURAL))


def _objects(api: ApiClient, now_s: float) -> tuple[tuple[KindFact, ...], tuple[str, ...]]:
    """Objects of all kinds, and the kinds that may not be listed."""
    found: list[KindFact] = []
    unlisted = []
    for resource in RESOURCES:
        try:
            found += [kind_fact(resource, obj, now_s) for obj in _all(api, resource.plural)]
        except RequestRefused as error:
            if error.status != _FORBIDDEN:
                raise
            unlisted.append(resource.kind)
    return tuple(found), tuple(unlisted)


def _all(api: ApiClient, plural: str) -> list[dict[str, Any]]:
    """Every object of a kind in all namespaces; none while the kind is not installed."""
    try:
        return list(api.items(f"/apis/{GROUP}/{VERSION}/{plural}"))
    except RequestRefused as error:
        if error.status == _NOT_FOUND:
            return []
        raise


def _policy(obj: Mapping[str, Any]) -> PolicyFact:
    conditions = {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}
    ready = conditions.get("Ready") or {}
    metadata = obj["metadata"]
    return PolicyFact(
        key=f"{metadata['namespace']}/{metadata['name']}",
        mode=str((obj.get("spec") or {}).get("mode") or "Shadow"),
        ready=str(ready.get("status") or "Unknown"),
        reason=str(ready.get("reason") or ""),
        message=str(ready.get("message") or ""),
        routed=str((conditions.get("Routed") or {}).get("status") or "Unknown"),
    )


def _waiting(api: ApiClient, scheduler_name: str) -> int:
    fields = f"spec.schedulerName={scheduler_name},spec.nodeName=,status.phase=Pending"
    return len(list(api.items("/api/v1/pods", fieldSelector=fields)))


def _switch(api: ApiClient, installation: Installation) -> str:
    found = _maybe(api, f"/api/v1/namespaces/{installation.namespace}/configmaps/{installation.name('switch')}")
    return str(((found or {}).get("data") or {}).get("enabled") or "").lower()
