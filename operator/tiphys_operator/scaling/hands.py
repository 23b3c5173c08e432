"""Requests of scaling to the API server: a workload, who else scales it, its quotas, a scale, a resize."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_models.base.clock import Clock
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.cluster.neighbours import OTHERS, Neighbours
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.runtime.writer import Writer
from tiphys_operator.scaling.conflicts import OtherScalers
from tiphys_operator.scaling.metrics import ScalingMetrics
from tiphys_operator.scaling.resizing import SizePod
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.workload import Target, target_of

SCALING_MANAGER = "tiphys-scaling"
"""Field manager of scales and resizes, so that GitOps tools can leave these fields to us by name."""
_MERGE, _STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
REFUSALS = (403, 422)
"""Status codes of refusals by RBAC, admission or validation: trying again at once changes nothing."""
_NOT_FOUND, _CONFLICT = 404, 409
_NOT_SERVED_FOR_S = 60.0
_PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
_AGAIN_S = (0.02, 0.05, 0.05, 0.1, 0.1, 0.2, 0.4)
"""Pauses between tries to write a status: by then the watch has shown what was changed."""


class Hands:
    """Reads and writes of scaling at the API server, for one holder of the Lease."""

    def __init__(
        self, client: KubeClient, writer: Writer, metrics: OperatorMetrics, clock: Clock, neighbours: Neighbours[Target] | None = None
    ) -> None:
        """`neighbours`: what watches tell, so that it is not asked for."""
        self._client, self._writer, self._metrics, self._clock, self._neighbours = client, writer, metrics, clock, neighbours
        self._asks = metrics.part(ScalingMetrics).asks
        self._not_served: dict[str, float] = {}

    async def target(self, namespace: str, kind: str, name: str) -> Target | None:
        """What is there now; None if it does not exist."""
        known = self._neighbours
        if known is not None and (target := known.workload(namespace, kind, name)) is not None:
            return target
        drops = known.drops(kind) if known is not None else 0
        self._asks.labels("target").inc()
        try:
            workload = await self._client.get(_path(namespace, kind, name))
            self._metrics.objects.look(kind, workload)
            target = target_of(workload, kind)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        if known is not None:
            known.asked(kind, workload, drops)
        return target

    async def others(self, namespace: str) -> OtherScalers:
        """Everybody else's autoscalers of a namespace; kinds that are not installed have none."""
        hpas, vpas, scaled = await asyncio.gather(
            self._of_namespace("HorizontalPodAutoscaler", namespace, "others"),
            self._of_namespace("VerticalPodAutoscaler", namespace, "others"),
            self._of_namespace("ScaledObject", namespace, "others"),
        )
        return OtherScalers(hpas, vpas, scaled)

    async def quotas(self, namespace: str) -> list[dict[str, Any]]:
        """ResourceQuotas of a namespace."""
        found = await self._of_namespace("ResourceQuota", namespace, "quotas")
        for quota in found:
            self._metrics.objects.look("ResourceQuota", quota)
        return found

    async def write(
        self, policy: ScalingSeen, status: ScalingPolicyStatus, newest: Callable[[], ScalingSeen | None] = lambda: None
    ) -> dict[str, Any] | None:
        """The object with its new status; None if it changed meanwhile in what a decision reads.

        Other changes, such as of a label, only make it need another try: somebody who makes them in a loop would stop all windows else.
        """
        for pause_s in (*_AGAIN_S, None):
            written: dict[str, Any] | None = await self._writer.write_object(policy, status)
            if written is not None or pause_s is None:
                return written
            await asyncio.sleep(pause_s)
            now = newest()
            if now is None or not _alike(now, policy):
                return None
            policy = replace(policy, version=now.version)
        return None

    async def scale(self, target: Target, replicas: int) -> None:
        """Set the number of pods; ApiError 409 if the workload changed since it was read."""
        body = {"metadata": {"resourceVersion": target.version}, "spec": {"replicas": replicas}}
        path = f"{_path(target.namespace, target.kind, target.name)}/scale"
        params = {"fieldManager": SCALING_MANAGER}
        await self._writer.fenced(self._client.request("PATCH", path, body=body, content_type=_MERGE, params=params))
        self._metrics.writes.labels("scale").inc()

    async def resize(self, change: SizePod, *, dry_run: bool = False) -> None:
        """Resize a pod in place; a dry run asks all of admission, quotas included, and changes nothing."""
        resources = {"requests": {"cpu": f"{change.request_m}m"}, "limits": {"cpu": f"{change.limit_m}m"}}
        body = {
            # the version that was judged: whoever resized or replaced it meanwhile wins
            "metadata": {"resourceVersion": change.pod.version},
            "spec": {"containers": [{"name": change.container, "resources": resources}]},
        }
        path = f"/api/v1/namespaces/{change.pod.namespace}/pods/{change.pod.name}/resize"
        params = {"fieldManager": SCALING_MANAGER} | ({"dryRun": "All"} if dry_run else {})
        await self._writer.fenced(self._client.request("PATCH", path, body=body, content_type=_STRATEGIC, params=params))
        if not dry_run:
            self._metrics.writes.labels("resize").inc()

    async def _of_namespace(self, kind: str, namespace: str, about: str) -> list[dict[str, Any]]:
        """What the watch tells of a namespace, else what a list of it does."""
        if self._neighbours is not None and (found := self._neighbours.others(kind, namespace)) is not None:
            return found
        start, _, plural = OTHERS[kind].rpartition("/")
        return await self._list(f"{start}/namespaces/{namespace}/{plural}", about)

    async def _list(self, path: str, about: str) -> list[dict[str, Any]]:
        group = path.partition("/namespaces/")[0]
        now_s = self._clock.monotonic_s()
        if self._not_served.get(group, 0.0) > now_s:
            return []
        self._asks.labels(about).inc()
        try:
            return [item async for page in self._client.pages(path) for item in page.get("items") or ()]
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            self._not_served[group] = now_s + _NOT_SERVED_FOR_S
            return []


def gone_or_changed(error: ApiError) -> bool:
    """Whether the object is not what was judged any more: the next look sees why."""
    return error.status in (_NOT_FOUND, _CONFLICT)


def mask_reason(error: ApiError) -> MaskReason:
    """What admission objects to."""
    text = str(error)
    known: Mapping[str, MaskReason] = {
        "exceeded quota": MaskReason.QUOTA,
        "LimitRange": MaskReason.LIMIT_RANGE,
        "per Container": MaskReason.LIMIT_RANGE,
        "per Pod": MaskReason.LIMIT_RANGE,
        "allocatable resources": MaskReason.NODE_CAPACITY,
    }
    return next((reason for words, reason in known.items() if words in text), MaskReason.REFUSED_BY_SERVER)


def _path(namespace: str, kind: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/{_PLURALS[kind]}/{name}"


def _alike(one: ScalingSeen, other: ScalingSeen) -> bool:
    """Whether a decision on the one is a decision on the other."""
    read = [
        (
            p.uid,
            p.generation,
            p.paused,
            p.retry,
            p.deleting,
            (p.stands or p.status).last_decision,
            (p.stands or p.status).observed_generation,
        )
        for p in (one, other)
    ]
    return read[0] == read[1]
