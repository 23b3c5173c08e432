"""Objects of binding as they were seen: plain data, whatever somebody wrote into them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from tiphys_models.api import inference_site, model_variant, stream_policy
from tiphys_models.api.base import Api
from tiphys_models.api.inference_site import InferenceSiteSpec, InferenceSiteStatus
from tiphys_models.api.model_variant import ModelVariantSpec, ModelVariantStatus
from tiphys_models.api.stream_policy import StreamPolicySpec, StreamPolicyStatus
from tiphys_models.kube.objects import generation_of, spec_or_problem, status_or_empty

Spec = TypeVar("Spec", bound=Api)
Status = TypeVar("Status", bound=Api)


@dataclass(frozen=True, slots=True)
class ObjectSeen(Generic[Spec, Status]):
    """One object of any of the three kinds."""

    namespace: str
    name: str
    uid: str
    generation: int
    version: str
    """resourceVersion: the precondition of a write."""
    created: str
    spec: Spec | None
    """None if it is invalid."""
    invalid: str
    status: Status
    """What stands there; empty if it is unreadable, so that it is written anew."""
    deleting: bool

    @property
    def key(self) -> str:
        """The object's key, `namespace/name`."""
        return f"{self.namespace}/{self.name}"


class SiteObject(ObjectSeen[InferenceSiteSpec, InferenceSiteStatus]):
    """An InferenceSite as plain data."""

    __slots__ = ()
    kind: ClassVar[str] = inference_site.KIND
    plural: ClassVar[str] = inference_site.PLURAL


class VariantObject(ObjectSeen[ModelVariantSpec, ModelVariantStatus]):
    """A ModelVariant as plain data."""

    __slots__ = ()
    kind: ClassVar[str] = model_variant.KIND
    plural: ClassVar[str] = model_variant.PLURAL


class PolicyObject(ObjectSeen[StreamPolicySpec, StreamPolicyStatus]):
    """A StreamPolicy as plain data."""

    __slots__ = ()
    kind: ClassVar[str] = stream_policy.KIND
    plural: ClassVar[str] = stream_policy.PLURAL

    @property
    def mode(self) -> str:
        """The mode in the spec; `Invalid` if the spec is invalid."""
        return self.spec.mode if self.spec is not None else "Invalid"


def site_object(obj: Mapping[str, Any]) -> SiteObject:
    """An InferenceSite as the API server sends it, as plain data."""
    return SiteObject(**_parts(obj, inference_site.parse_site, InferenceSiteStatus))


def variant_object(obj: Mapping[str, Any]) -> VariantObject:
    """A ModelVariant as the API server sends it, as plain data."""
    return VariantObject(**_parts(obj, model_variant.parse_variant, ModelVariantStatus))


def policy_object(obj: Mapping[str, Any]) -> PolicyObject:
    """A StreamPolicy as the API server sends it, as plain data."""
    return PolicyObject(**_parts(obj, stream_policy.parse_stream_policy, StreamPolicyStatus))


def _parts(obj: Mapping[str, Any], parse: Callable[[dict[str, Any]], Api], status_model: type[Api]) -> dict[str, Any]:
    metadata = obj["metadata"]
    spec, invalid = spec_or_problem(obj, parse)
    status = status_or_empty(obj, status_model)
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "generation": generation_of(metadata),
        "version": metadata.get("resourceVersion") or "",
        "created": metadata.get("creationTimestamp") or "",
        "spec": spec,
        "invalid": invalid,
        "status": status,
        "deleting": bool(metadata.get("deletionTimestamp")),
    }
