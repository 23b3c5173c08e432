"""Asks the API server at start, and again from time to time, whether RBAC grants what the operator needs.

A missing verb is named in the log and in a metric, what needs it is off, and the process stays up: a hole in a Role should be readable from
the outside, not make a pod crash in a loop.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from tiphys_models.api.base import GROUP
from tiphys_models.api.inference_site import PLURAL as SITES
from tiphys_models.api.learned_model import PLURAL as MODELS
from tiphys_models.api.model_variant import PLURAL as VARIANTS
from tiphys_models.api.placement_plan import PLURAL as PLANS
from tiphys_models.api.scaling_policy import PLURAL as SCALING
from tiphys_models.api.scheduling_policy import PLURAL
from tiphys_models.api.stream_policy import PLURAL as STREAMS
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import KubeClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.settings import Settings

log = logging.getLogger(__name__)

_REVIEW_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Permission:
    """One verb on one resource, and what is off without it."""

    verb: str
    group: str
    resource: str
    needed_for: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def text(self) -> str:
        """The permission as a Role would say it: `patch schedulingpolicies/status`."""
        return f"{self.verb} {self.target}"

    @property
    def target(self) -> str:
        """Resource with group and subresource."""
        path = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{path}.{self.group}" if self.group else path


LIST_POLICIES = Permission("list", GROUP, PLURAL, "everything")
WATCH_POLICIES = Permission("watch", GROUP, PLURAL, "reacting before the next resync")
WRITE_STATUS = Permission("patch", GROUP, PLURAL, "status and conditions", subresource="status")
LIST_MODELS = Permission("list", GROUP, MODELS, "statuses of LearnedModels")
WATCH_MODELS = Permission("watch", GROUP, MODELS, "the whole watch, which covers policies and models")
WRITE_MODEL_STATUS = Permission("patch", GROUP, MODELS, "status and conditions of LearnedModels", subresource="status")
LIST_PODS = Permission("list", "", "pods", "counts of pods and the condition Routed")
WATCH_PODS = Permission("watch", "", "pods", "counts of pods and the condition Routed")
WATCH_NODES = Permission("watch", "", "nodes", "policies with select")
LIST_NODES = Permission("list", "", "nodes", "policies with select")
WRITE_PLANS = Permission("patch", GROUP, PLANS, "plans of policies with select")
_SCALING = (
    Permission("list", GROUP, SCALING, "ScalingPolicies"),
    Permission("watch", GROUP, SCALING, "ScalingPolicies"),
    Permission("patch", GROUP, SCALING, "status of ScalingPolicies, and so everything they do", subresource="status"),
)
_SCALING_ACTS = (
    Permission("get", "apps", "deployments", "scaling Deployments"),
    Permission("patch", "apps", "deployments", "scaling Deployments", subresource="scale"),
    Permission("get", "apps", "statefulsets", "scaling StatefulSets"),
    Permission("patch", "apps", "statefulsets", "scaling StatefulSets", subresource="scale"),
    Permission("patch", "", "pods", "changing CPU in place", subresource="resize"),
    Permission("list", "", "resourcequotas", "seeing before the API server says so that a quota is used up"),
    Permission("list", "autoscaling", "horizontalpodautoscalers", "acting on ScalingPolicies: who else scales must be known"),
    Permission("list", "autoscaling.k8s.io", "verticalpodautoscalers", "acting on ScalingPolicies: who else scales must be known"),
    Permission("list", "keda.sh", "scaledobjects", "acting on ScalingPolicies: who else scales must be known"),
)
_KNOWS = "knowing without a question a window"
_SCALING_KNOWS = (
    *(Permission(verb, "apps", kind, _KNOWS) for kind in ("deployments", "statefulsets") for verb in ("list", "watch")),
    Permission("watch", "", "resourcequotas", _KNOWS),
    Permission("watch", "autoscaling", "horizontalpodautoscalers", _KNOWS),
    Permission("watch", "autoscaling.k8s.io", "verticalpodautoscalers", _KNOWS),
    Permission("watch", "keda.sh", "scaledobjects", _KNOWS),
)
"""Where all namespaces may be scaled; without them each window asks."""
_BINDING = (
    *(Permission(verb, GROUP, kind, f"statuses of {kind}") for kind in (SITES, VARIANTS, STREAMS) for verb in ("list", "watch")),
    *(Permission("patch", GROUP, kind, f"statuses of {kind}", subresource="status") for kind in (SITES, VARIANTS, STREAMS)),
    *(Permission(verb, "discovery.k8s.io", "endpointslices", "replicas of ModelVariants") for verb in ("list", "watch")),
)
GET_HELD = Permission("get", "", "pods", "looking again at a held pod that was changed")
OPEN_GATES = Permission("patch", "", "pods", "letting go pods that are held longer than anybody may wait")
WRITE_HINTS = Permission("patch", "", "pods", "hints on pods")
CREATE_EVENTS = Permission("create", "", "events", "Events")
PATCH_EVENTS = Permission("patch", "", "events", "counting up repeated Events")


def wanted(
    namespace: str,
    lease_name: str,
    selection_configmap: str,
    *,
    scaling: bool = True,
    binding: bool = True,
    scaling_namespaces: Collection[str] = (),
    gates: bool = False,
    hints: Collection[str] = (),
    claim: tuple[str, str] | None = None,
) -> tuple[Permission, ...]:
    """Everything the operator does; what scaling does to workloads in the named namespaces only, if any are named.

    `hints`: namespaces in which hints are written; one without a name is all of them.
    """
    places = sorted(scaling_namespaces) or [""]
    acts = tuple(replace(permission, namespace=place) for place in places for permission in _SCALING_ACTS)
    lease = {"group": "coordination.k8s.io", "resource": "leases", "needed_for": "leading", "namespace": namespace}
    return (
        LIST_POLICIES,
        WATCH_POLICIES,
        WRITE_STATUS,
        LIST_MODELS,
        WATCH_MODELS,
        WRITE_MODEL_STATUS,
        Permission("get", "", "configmaps", "checking the artifacts of LearnedModels", namespace=namespace),
        LIST_PODS,
        WATCH_PODS,
        LIST_NODES,
        WATCH_NODES,
        WRITE_PLANS,
        Permission("create", GROUP, PLANS, "plans of policies with select"),
        Permission("patch", "", "configmaps", "what selections have learned", namespace=namespace, name=selection_configmap),
        *((*_SCALING, *acts, *(() if scaling_namespaces else _SCALING_KNOWS)) if scaling else ()),
        *(_BINDING if binding else ()),
        *((GET_HELD, OPEN_GATES) if gates else ()),
        *(replace(WRITE_HINTS, namespace=place) for place in sorted(hints)),
        CREATE_EVENTS,
        PATCH_EVENTS,
        Permission(verb="get", name=lease_name, **lease),
        Permission(verb="create", **lease),
        Permission(verb="update", name=lease_name, **lease),
        *(_claiming(*claim) if claim is not None else ()),
    )


def wanted_by(settings: Settings, claim: tuple[str, str] | None) -> tuple[Permission, ...]:
    """Everything that an operator with these settings does."""
    return wanted(
        settings.namespace,
        settings.lease_name,
        settings.selection_configmap,
        scaling=settings.scaling,
        scaling_namespaces=settings.scaling_namespaces,
        binding=settings.binding,
        gates=settings.gates_enabled,
        hints=(settings.hints_namespaces or {""}) if settings.hints else (),
        claim=claim,
    )


def _claiming(namespace: str, name: str) -> tuple[Permission, ...]:
    """The rights on exactly one Lease: a PUT that creates it is checked with its name, too."""
    why = "acting as the only release of the cluster"
    return tuple(
        Permission(verb, "coordination.k8s.io", "leases", why, namespace=namespace, name=name) for verb in ("get", "create", "update")
    )


class PermissionCheck:
    """What RBAC denies, as far as asked."""

    def __init__(self, client: KubeClient, permissions: tuple[Permission, ...], metrics: OperatorMetrics) -> None:
        self._client, self._permissions, self._metrics = client, permissions, metrics
        self._denied: frozenset[Permission] = frozenset()
        for permission in permissions:
            metrics.missing_permission.labels(permission.verb, permission.target).set(0)

    @property
    def denied(self) -> frozenset[Permission]:
        """Permissions that are missing; unknown ones count as granted, the API server says so when they are used."""
        return self._denied

    def allows(self, permission: Permission) -> bool:
        """Whether the permission is not known to be missing."""
        return permission not in self._denied

    async def check(self) -> None:
        """Ask about all of them; Unavailable if the API server does not answer."""
        denied = frozenset([permission for permission in self._permissions if not await self._granted(permission)])
        missing = {(permission.verb, permission.target) for permission in denied}  # in any of the namespaces in which it is needed
        for permission in self._permissions:
            named = (permission.verb, permission.target)
            self._metrics.missing_permission.labels(*named).set(named in missing)
        for permission in sorted(denied - self._denied, key=lambda p: p.text):
            fields = {"verb": permission.verb, "resource": permission.target, "off": permission.needed_for}
            if permission.namespace:
                fields["namespace"] = permission.namespace
            log.error("RBAC denies %s: add it to the operator's role", permission.text, extra={"fields": fields})
        for permission in sorted(self._denied - denied, key=lambda p: p.text):
            log.info("RBAC now grants %s", permission.text)
        self._denied = denied

    async def check_softly(self) -> None:
        """The same as `check`, except that nothing changes if the API server does not answer."""
        try:
            await self.check()
        except Unavailable as error:
            log.warning("permissions could not be checked", extra={"fields": {"error": str(error)}})

    async def _granted(self, permission: Permission) -> bool:
        attributes = {
            "verb": permission.verb,
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
            "namespace": permission.namespace,
            "name": permission.name,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        answer = await self._client.request("POST", _REVIEW_PATH, body=review)
        return bool((answer.get("status") or {}).get("allowed"))
