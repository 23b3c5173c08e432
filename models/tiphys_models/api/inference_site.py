"""InferenceSite, `tiphys.io/v1alpha1`: where models run, how far that is, and whether it answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, StringConstraints, model_validator

from tiphys_models.api.base import GROUP, VERSION, Api, CelRule, Condition, Integer, Number, ObjectName, parse, whole_number

KIND = "InferenceSite"
PLURAL = "inferencesites"
SITES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"

Layer = Literal["antenna", "co", "dc", "cloud"]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s?#]*)?$", max_length=512)]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9.:]*[A-Za-z0-9])?$", max_length=253)]
# the bounds first: pydantic knows no schema for bounds on a validator inside "or null"
Port = Annotated[int, Field(ge=1, le=65535), BeforeValidator(whole_number)]

PROBE_RULES = (
    CelRule(
        "has(self.url) ? !has(self.host) && !has(self.port) : has(self.host) && has(self.port)",
        "a probe goes to url, or to host and port: set the one or the other two",
        lambda p: (p.host is None and p.port is None) if p.url is not None else (p.host is not None and p.port is not None),
    ),
    CelRule(
        "self.timeoutSeconds <= self.intervalSeconds",
        "timeoutSeconds must not be above intervalSeconds: probes would overtake each other",
        lambda p: p.timeout_seconds <= p.interval_seconds,
    ),
)


class Probe(Api):
    """How the operator finds out whether the site answers, and how far it is."""

    url: Url | None = Field(default=None, description="Asked with GET; any answer below 500 counts. Choose one that costs no time.")
    host: Host | None = Field(default=None, description="Name or address, for a TCP connection.")
    port: Port | None = Field(default=None, description="Port of the TCP connection.")
    interval_seconds: Integer = Field(default=2, ge=1, le=300, description="Time between two probes. Default 2.")
    timeout_seconds: Integer = Field(default=1, ge=1, le=60, description="A probe without an answer for so long is missed. Default 1.")

    @model_validator(mode="after")
    def _consistent(self) -> Probe:
        for rule in PROBE_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class DeclaredDelay(Api):
    """One way from an access site."""

    origin: ObjectName = Field(alias="from", description="Name of the access site, in the same namespace.")
    mean_ms: Number = Field(ge=0, le=60_000, description="Mean, in milliseconds, one way.")
    sigma_ms: Number = Field(default=0.0, ge=0, le=60_000, description="Standard deviation, in milliseconds. Default 0.")


class InferenceSiteSpec(Api):
    """What the user says of it."""

    layer: Layer = Field(description="antenna, co (central office), dc (data centre) or cloud. Agents pool sites by it.")
    access: StrictBool = Field(default=False, description="Whether streams enter the network here: such a site has a binder of its own.")
    probe: Probe | None = Field(default=None, description="How it is probed; without it the site counts as reachable.")
    delays: list[DeclaredDelay] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["from"]},
        description="Delays from access sites, as long as none is measured.",
    )

    @model_validator(mode="after")
    def _each_once(self) -> InferenceSiteSpec:
        if len({d.origin for d in self.delays}) != len(self.delays):
            raise ValueError("delays: one entry for each access site")
        return self


class MeasuredDelay(Api):
    """One way from where somebody probes."""

    origin: str = Field(alias="from", max_length=253, description="Access site at which was measured.")
    mean_ms: float = Field(ge=0, description="Mean of half the round trips, in milliseconds.")
    sigma_ms: float = Field(ge=0, description="Their standard deviation, in milliseconds.")
    samples: int = Field(ge=1, description="How many.")
    measured_at: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="Time of the newest one.")


class InferenceSiteStatus(Api):
    """What the operator found."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    delays: list[MeasuredDelay] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["from"]},
        description="Measured delays. A fresh one counts instead of the declared one.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Reachable.",
    )


def parse_site(obj: dict[str, Any]) -> InferenceSiteSpec:
    """The spec of an InferenceSite object; InvalidInput says which field is wrong."""
    return parse(InferenceSiteSpec, obj, "is missing")
