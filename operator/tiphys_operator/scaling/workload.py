"""A workload as scaling sees it: plain facts from the API server's object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.base.quantity import cpu_milli, memory_bytes
from tiphys_models.base.selector import LabelSelector, Requirement
from tiphys_operator.cluster.scaled import ContainerCpu, ScaledPod, container_cpu

_HASH_LABEL = "pod-template-hash"


@dataclass(frozen=True, slots=True)
class Target:
    """A Deployment or StatefulSet."""

    kind: str
    namespace: str
    name: str
    version: str
    replicas: int
    """The number of pods that the workload's spec asks for."""
    selector: LabelSelector
    template: tuple[ContainerCpu, ...]
    template_requests: Mapping[str, float]
    """What a new pod adds to quotas: requests.cpu, limits.cpu in millicores, requests.memory, limits.memory in bytes."""
    manager: str
    """The field manager that last set the number of pods, as far as managed fields tell."""
    rolling_out: bool
    not_created: str
    """Why pods cannot be created; empty if they can."""

    def container(self, name: str | None) -> ContainerCpu | None:
        """The template's container of this name; without a name, the first one."""
        return next((c for c in self.template if name is None or c.name == name), None)

    def owns(self, pod: ScaledPod) -> bool:
        """Whether the pod belongs to this workload, and is not merely labelled alike."""
        if pod.namespace != self.namespace or not self.selector.matches(pod.labels):
            return False
        if self.kind == "StatefulSet":
            return pod.owner == ("StatefulSet", self.name)
        return pod.owner == ("ReplicaSet", f"{self.name}-{pod.labels.get(_HASH_LABEL, '')}")


def target_of(obj: Mapping[str, Any], kind: str) -> Target:
    """A `Target` made from a Deployment or StatefulSet as the API server sends it."""
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    containers = spec["template"]["spec"].get("containers") or ()
    selector = spec.get("selector") or {}
    expressions = tuple(
        Requirement(line["key"], line["operator"], frozenset(line.get("values") or ())) for line in selector.get("matchExpressions") or ()
    )
    replicas = spec.get("replicas")
    return Target(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=metadata["resourceVersion"],
        replicas=1 if replicas is None else int(replicas),
        selector=LabelSelector.of(selector.get("matchLabels") or {}, expressions),
        template=tuple(container_cpu(c, {}) for c in containers),
        template_requests=_requests(containers),
        manager=_manager(metadata.get("managedFields") or ()),
        rolling_out=_rolling_out(metadata, status, _to_update(kind, spec, status)),
        not_created=_not_created(status),
    )


def _requests(containers: Iterable[Mapping[str, Any]]) -> Mapping[str, float]:
    total = dict.fromkeys(("requests.cpu", "limits.cpu", "requests.memory", "limits.memory"), 0.0)
    for container in containers:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        for part, amounts in (("requests", requests), ("limits", limits)):
            total[f"{part}.cpu"] += cpu_milli(amounts.get("cpu") or 0)
            total[f"{part}.memory"] += memory_bytes(amounts.get("memory") or 0)
    return total


def _manager(fields: Iterable[Mapping[str, Any]]) -> str:
    setters = [entry for entry in fields if "f:replicas" in (((entry.get("fieldsV1") or {}).get("f:spec")) or {})]
    # an entry without a manager is unusual, but the API server keeps it
    return str(max(setters, key=lambda entry: str(entry.get("time") or "")).get("manager") or "") if setters else ""


def _rolling_out(metadata: Mapping[str, Any], status: Mapping[str, Any], to_update: int) -> bool:
    seen = status.get("observedGeneration") or 0
    return seen == metadata.get("generation") and (status.get("updatedReplicas") or 0) < to_update


def _to_update(kind: str, spec: Mapping[str, Any], status: Mapping[str, Any]) -> int:
    """How many pods the workload's controller will bring to the newest template by itself."""
    replicas: int = status.get("replicas") or 0
    strategy = (spec.get("updateStrategy") or {}) if kind == "StatefulSet" else {}
    if strategy.get("type") == "OnDelete":
        return 0
    # ordinals below the partition keep their revision for as long as somebody wants them to
    return max(replicas - ((strategy.get("rollingUpdate") or {}).get("partition") or 0), 0)


def _not_created(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return str(condition.get("message") or condition.get("reason") or "pods cannot be created")[:300]
    return ""
