"""A ScalingPolicy as it was seen: plain data, whatever somebody wrote into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tiphys_models.api import scaling_policy
from tiphys_models.api.scaling_policy import PAUSE_ANNOTATION, RETRY_ANNOTATION, ScalingPolicySpec, parse_scaling
from tiphys_models.api.scaling_status import ScalingPolicyStatus
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import timestamp_s
from tiphys_models.kube.objects import generation_of, spec_or_problem, status_or_empty


@dataclass(frozen=True, slots=True)
class ScalingSeen:
    """One ScalingPolicy as plain data."""

    kind: ClassVar[str] = scaling_policy.KIND
    plural: ClassVar[str] = scaling_policy.PLURAL
    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    """resourceVersion: the precondition of a write."""
    created: str
    spec: ScalingPolicySpec | None
    """None if it is invalid."""
    invalid: str
    status: ScalingPolicyStatus
    """What stands there; empty if it is unreadable, so that it is written anew."""
    paused: bool = False
    retry: str = ""
    """Value of the annotation that gives an agent another chance."""
    deleting: bool = False
    stands: ScalingPolicyStatus | None = None
    """What stands in the object where `status` is newer than that; None: the same."""

    @property
    def key(self) -> str:
        """The object's key, `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def scaling_seen(obj: Mapping[str, Any]) -> ScalingSeen:
    """The ScalingPolicy as the API server sends it, as plain data."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    spec, invalid = spec_or_problem(obj, parse_scaling)
    status = _usable(status_or_empty(obj, ScalingPolicyStatus))
    return ScalingSeen(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=generation_of(metadata),
        version=metadata.get("resourceVersion") or "",
        created=metadata.get("creationTimestamp") or "",
        spec=spec,
        invalid=invalid,
        status=status,
        paused=annotations.get(PAUSE_ANNOTATION) == "true",
        retry=str(annotations.get(RETRY_ANNOTATION) or "")[:63],
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _usable(status: ScalingPolicyStatus) -> ScalingPolicyStatus:
    """Without a last decision of which nobody can say when it was: the next one is made anew."""
    last = status.last_decision
    try:
        at_s = timestamp_s(last.at) if last is not None else None
    except InvalidInput:
        at_s = None
    return status if last is None or at_s is not None else status.model_copy(update={"last_decision": None})
