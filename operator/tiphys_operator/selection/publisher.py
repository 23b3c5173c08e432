"""Writes PlacementPlans, so that no former leader's late write overwrites a newer one."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tiphys_models.api.base import API_VERSION
from tiphys_models.api.placement_plan import KIND, PLURAL, PlacementPlanSpec
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_operator.metrics import OperatorMetrics
from tiphys_operator.placement.observation import PolicySeen
from tiphys_operator.runtime.writer import FIELD_MANAGER, Writer

_NOT_FOUND, _CONFLICT = 404, 409
_APPLY = "application/apply-patch+yaml"
_REMEMBERED = 4096


class Publisher:
    """Writes of PlacementPlans by one holder of the Lease."""

    def __init__(self, client: KubeClient, writer: Writer, metrics: OperatorMetrics) -> None:
        self._client, self._writer, self._metrics = client, writer, metrics
        self._versions: OrderedDict[str, str] = OrderedDict()
        """resourceVersion of each plan as this process wrote it, by the policy's uid: the precondition of the next write."""

    async def publish(self, policy: PolicySeen, plan: PlacementPlanSpec) -> None:
        """Make or replace the policy's plan."""
        version = self._versions.pop(policy.uid, "")
        if not version:
            version = await self._version_there(policy, plan)
        try:
            written = await self._write(policy, plan, version)
        except ApiError as error:
            if error.status not in (_NOT_FOUND, _CONFLICT):
                raise
            # somebody touched, made or deleted it since: once more, on what is there now
            written = await self._write(policy, plan, await self._version_there(policy, plan))
        self._versions[policy.uid] = _version(written)
        if len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)
        self._metrics.writes.labels("plan").inc()

    async def _version_there(self, policy: PolicySeen, plan: PlacementPlanSpec) -> str:
        """The version of the plan that is there, empty if there is none: what a dry run shows without the right to read plans."""
        params = {"fieldManager": FIELD_MANAGER, "force": "true", "dryRun": "All"}
        path, body = f"{_collection(policy)}/{policy.name}", _body(policy, plan, "")
        return _version(await self._writer.fenced(self._client.request("PATCH", path, body=body, content_type=_APPLY, params=params)))

    async def _write(self, policy: PolicySeen, plan: PlacementPlanSpec, version: str) -> Any:
        """A write with the precondition that the stored plan has this version, or (empty) that there is none."""
        body = _body(policy, plan, version)
        if version:
            return await self._writer.fenced(self._client.apply(f"{_collection(policy)}/{policy.name}", body, FIELD_MANAGER))
        params = {"fieldManager": FIELD_MANAGER}
        return await self._writer.fenced(self._client.request("POST", _collection(policy), body=body, params=params))


def _collection(policy: PolicySeen) -> str:
    return f"/apis/{API_VERSION}/namespaces/{policy.namespace}/{PLURAL}"


def _body(policy: PolicySeen, plan: PlacementPlanSpec, version: str) -> dict[str, Any]:
    owner = {"apiVersion": API_VERSION, "kind": policy.kind, "name": policy.name, "uid": policy.uid}
    metadata = {"name": policy.name, "namespace": policy.namespace, "ownerReferences": [owner]}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata | ({"resourceVersion": version} if version else {}),
        "spec": plan.model_dump(by_alias=True, mode="json"),
    }


def _version(plan: Any) -> str:
    return str(plan["metadata"].get("resourceVersion") or "")
