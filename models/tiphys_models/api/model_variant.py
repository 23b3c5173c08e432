"""ModelVariant, `tiphys.io/v1alpha1`: a model as it runs at one site, how good and how fast it is, and where it answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from tiphys_models.api.base import GROUP, VERSION, Api, CelRule, Condition, Number, ObjectName, parse
from tiphys_models.api.inference_site import Port, Url

KIND = "ModelVariant"
PLURAL = "modelvariants"
VARIANTS_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
ENDPOINTS_SHOWN = 32

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", min_length=1, max_length=63)]

LEAST = 0.001
# `minimum` says it too, but the API server cuts it to an integer where the value is one: 0 would pass
CEL_RULES = tuple(
    CelRule(f"self.{field} >= {LEAST}", f"{field} must be at least {LEAST}", lambda v: True)  # the field's own bound holds here
    for field in ("capacityQps", "profiledKb")
)
ENDPOINT_RULES = (
    CelRule(
        "has(self.url) != has(self.service)",
        "an endpoint is a url or a service: set exactly one",
        lambda e: (e.url is None) != (e.service is None),
    ),
)


class ServiceRef(Api):
    """A Service in the variant's own namespace."""

    name: ObjectName = Field(description="Name of the Service; its ready endpoints are the variant's replicas.")
    port: Port = Field(description="Port of the Service.")
    scheme: Literal["http", "https"] = Field(default="http", description="http or https. Default http.")


class QueryEndpoint(Api):
    """Endpoint that queries of a stream are sent to: an address or a Service, exactly one of them."""

    url: Url | None = Field(default=None, description="Address outside this cluster. Counts as one replica that is ready.")
    service: ServiceRef | None = Field(default=None, description="Service of this cluster.")

    @model_validator(mode="after")
    def _consistent(self) -> QueryEndpoint:
        for rule in ENDPOINT_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class ModelVariantSpec(Api):
    """What the user says of it."""

    task: Word = Field(description="What it does; streams ask for it by this word.")
    model: Word = Field(description="Which model it is a variant of.")
    site: ObjectName = Field(description="Name of the InferenceSite it runs at, in the same namespace.")
    accuracy: Number = Field(ge=0, le=100, description="In the unit of the streams' minAccuracy, for example mAP in percent.")
    delay_ms: Number = Field(ge=0, le=3_600_000, description="Processing of a query of the profiled size without waiting, in milliseconds.")
    capacity_qps: Number = Field(ge=LEAST, le=1_000_000, description="Queries of the profiled size that one replica serves each second.")
    profiled_kb: Number = Field(ge=LEAST, le=1_000_000, description="Size of the queries it was profiled with, in kilobytes on the wire.")
    hardware: Literal["cpu", "gpu"] = Field(default="cpu", description="What it runs on. Default cpu.")
    cost: Number = Field(default=0.0, ge=0, le=1_000_000, description="Of one replica for an hour, in a unit of your own. Default 0.")
    endpoint: QueryEndpoint = Field(description="Where queries go.")


class ModelVariantStatus(Api):
    """What the operator found."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    replicas: int = Field(default=0, ge=0, description="Endpoints that are ready.")
    endpoints: list[Annotated[str, StringConstraints(max_length=600)]] = Field(
        default_factory=list,
        max_length=ENDPOINTS_SHOWN,
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
        description=f"Addresses of ready endpoints, the first {ENDPOINTS_SHOWN}.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready.",
    )


def parse_variant(obj: dict[str, Any]) -> ModelVariantSpec:
    """The spec of a ModelVariant object; InvalidInput says which field is wrong."""
    return parse(ModelVariantSpec, obj, "is missing")
