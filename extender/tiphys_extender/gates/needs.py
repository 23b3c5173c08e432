"""What a pod asks of a node, as far as the small filter of this room understands it.

kube-scheduler has a score of filters; this one knows those that nearly all pods need, and says so when a pod needs another. Whoever is
not understood is never held.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tiphys_models.placement.gate import GATE

_HARMLESS = frozenset({
    "activeDeadlineSeconds", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "ephemeralContainers",
    "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets", "os",
    "preemptionPolicy", "readinessGates", "restartPolicy", "runtimeClassName", "securityContext", "serviceAccount", "serviceAccountName",
    "setHostnameAsFQDN", "shareProcessNamespace", "subdomain", "terminationGracePeriodSeconds",
})  # fmt: skip
"""Fields of a pod's spec that make no node impossible."""
_READ = frozenset({
    "affinity", "containers", "initContainers", "nodeName", "nodeSelector", "overhead", "priority", "priorityClassName", "schedulerName",
    "schedulingGates", "tolerations", "topologySpreadConstraints", "volumes",
})  # fmt: skip
_VOLUMES = frozenset({"name", "configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image"})
"""Volumes that are the same on every node."""
_AMOUNTS = frozenset({"cpu", "memory"})


def is_understood(spec: Mapping[str, Any]) -> bool:
    """Whether nothing but what this filter knows can make a node impossible for the pod."""
    return (
        not spec.keys() - _HARMLESS - _READ
        and all(gate.get("name") == GATE for gate in spec.get("schedulingGates") or ())
        and all(volume.keys() <= _VOLUMES for volume in spec.get("volumes") or ())
        and all(c.get("whenUnsatisfiable") == "ScheduleAnyway" for c in spec.get("topologySpreadConstraints") or ())
        and not any(_required(spec, kind) for kind in ("podAffinity", "podAntiAffinity"))
        and all(_is_plain(c) for kind in ("containers", "initContainers") for c in spec.get(kind) or ())
        and not (spec.get("overhead") or {}).keys() - _AMOUNTS
    )


def needs_of(spec: Mapping[str, Any]) -> bytes:
    """Labels and taints that matter to the pod, as one key: pods of one workload share it."""
    terms = _required(spec, "nodeAffinity").get("nodeSelectorTerms")
    return orjson.dumps([spec.get("nodeSelector") or {}, terms, spec.get("tolerations") or []], option=orjson.OPT_SORT_KEYS)


def _required(spec: Mapping[str, Any], kind: str) -> Any:
    return ((spec.get("affinity") or {}).get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}


def _is_plain(container: Mapping[str, Any]) -> bool:
    resources = container.get("resources") or {}
    asked = {*(resources.get("requests") or {}), *(resources.get("limits") or {})}
    return not asked - _AMOUNTS and not resources.get("claims") and not any(p.get("hostPort") for p in container.get("ports") or ())
