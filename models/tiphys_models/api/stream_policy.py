"""StreamPolicy, `tiphys.io/v1alpha1`: who binds the streams that enter at an access site, and how far capacities are given away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from tiphys_models.api.base import GROUP, VERSION, Api, CelRule, Condition, Integer, ModelName, Number, ObjectName, parse
from tiphys_models.api.comparison import ComparisonStatus
from tiphys_models.api.decider_names import DeciderName
from tiphys_models.streams.agent import WINDOW_S
from tiphys_models.streams.protocol import CEILING
from tiphys_models.streams.registry import LEARNED
from tiphys_models.streams.rules import STATIC

KIND = "StreamPolicy"
PLURAL = "streampolicies"
STREAM_POLICIES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
DEFAULT_POLICY = "relative-load"
RECOVERY_CEILING = 0.7
SHORTEST_LEASE_S, LONGEST_LEASE_S = 8, 10
"""A standby waits up to 4.4 s for the access site of a dead binder. A stream that is renewed at a third of its lease, and asks again
until it is answered, has two thirds left then: 5.3 s of 8."""

StreamMode = Literal["Off", "Shadow", "Canary", "Active"]


def _one_of(names: Sequence[str]) -> Callable[[str], str]:
    def known(value: str) -> str:
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    return known


StaticName = Annotated[str, AfterValidator(_one_of(tuple(STATIC))), Field(json_schema_extra={"enum": [*STATIC]})]

LEAST_CEILING = 0.1
CEL_RULES = (
    CelRule(
        f"self.ceiling >= {LEAST_CEILING} && self.recoveryCeiling >= {LEAST_CEILING}",
        f"ceiling and recoveryCeiling must be at least {LEAST_CEILING}",
        lambda s: True,  # their own bounds hold here; the API server cuts those to integers for integers: 0 would pass
    ),
    CelRule(
        "self.recoveryCeiling <= self.ceiling",
        "recoveryCeiling must not be above ceiling: it is the more careful one",
        lambda s: s.recovery_ceiling <= s.ceiling,
    ),
    CelRule(
        f"self.leaseSeconds >= {SHORTEST_LEASE_S}",
        f"leaseSeconds must be at least {SHORTEST_LEASE_S}: streams must outlast the wait for whoever follows a dead binder",
        lambda s: s.lease_seconds >= SHORTEST_LEASE_S,
    ),
    CelRule(
        f"!has(self.model) || self.policy in {sorted(LEARNED)}",
        "model belongs to a learned policy or an agent: remove it or choose one",
        lambda s: s.model is None or s.policy in LEARNED,
    ),
    CelRule(
        "(has(self.mode) && self.mode == 'Canary') == has(self.canary)",
        "canary.percent belongs to mode Canary: set both or neither",
        lambda s: (s.mode == "Canary") == (s.canary is not None),
    ),
)


class StreamCanary(Api):
    """Share of streams that `policy` binds in mode Canary."""

    percent: Integer = Field(
        ge=0, le=100, description="Share of streams, by their id: a stream that asks again with its key stays in its group."
    )


class StreamPolicySpec(Api):
    """What the user wants."""

    access_site: ObjectName = Field(
        description="Name of the InferenceSite at which the streams enter, in the same namespace; it has `access: true`."
    )
    mode: StreamMode = Field(
        default="Off",
        description="Off (in quotes: plain YAML reads it as false): nothing is bound. Shadow: `fallback` binds, `policy` is asked "
        "beside it. Canary: `policy` binds a share of streams, `fallback` the rest. Active: `policy` binds. Default Off.",
    )
    canary: StreamCanary | None = Field(default=None, description="Needed in mode Canary, forbidden otherwise.")
    policy: DeciderName = Field(
        default=DEFAULT_POLICY,
        description=(
            "Stream policy, or agent that names one every window: `tiphys policies` lists them, those of installed packages included. "
            f"Default {DEFAULT_POLICY}."
        ),
    )
    fallback: StaticName = Field(
        default=DEFAULT_POLICY,
        description="Rule that binds while the policy cannot (unknown, failing, weights missing or refused), in Shadow, and outside of the "
        f"canary's share. Default {DEFAULT_POLICY}.",
    )
    model: ModelName | None = Field(
        default=None, description="Name of the weights of a learned policy or agent. Default: the policy's own name."
    )
    window_seconds: Integer = Field(default=int(WINDOW_S), ge=1, le=60, description="How long an agent's choice holds. Default 5.")
    ceiling: Number = Field(default=CEILING, ge=LEAST_CEILING, le=1, description="Share of a capacity that is given away. Default 0.9.")
    lease_seconds: Integer = Field(
        default=LONGEST_LEASE_S,
        ge=1,
        le=LONGEST_LEASE_S,
        description="A stream that was not renewed for so long has ended; at least 8, for it must outlast the wait for another binder. "
        "Default 10, which is also the most.",
    )
    recovery_ceiling: Number = Field(
        default=RECOVERY_CEILING,
        ge=LEAST_CEILING,
        le=1,
        description="Ceiling for new streams while a binder that has just started learns from renewals what is bound. Default 0.7.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> StreamPolicySpec:
        for rule in CEL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    @property
    def model_name(self) -> str | None:
        """Name of the artifact it needs; None for static policies."""
        return (self.model or str(self.policy)) if self.policy in LEARNED else None


class QueryShares(Api):
    """What became of the queries of the last minute."""

    success_percent: float = Field(ge=0, le=100, description="Answered in time.")
    reject_percent: float = Field(ge=0, le=100, description="Of streams that were not bound.")
    failure_percent: float = Field(ge=0, le=100, description="Late or dropped, of streams that were bound.")
    queries: int = Field(ge=0, description="How many are known.")


class LastChoice(Api):
    """An agent's, or a change of the spec."""

    at: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="When.")
    policy: str = Field(max_length=63, description="Policy from then on.")
    reason: str = Field(max_length=120, description="Why.")


class StreamPolicyStatus(Api):
    """What the operator heard from the binder."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    active_policy: str = Field(default="", max_length=63, description="Policy that binds now.")
    streams: int = Field(default=0, ge=0, description="Streams that are bound now.")
    shares: QueryShares | None = Field(default=None, description="What became of the queries of the last minute.")
    last_decision: LastChoice | None = Field(default=None, description="The last change of the policy that binds.")
    comparison: ComparisonStatus | None = Field(
        default=None,
        description="What `policy` and `fallback` have shown side by side since spec or weights last changed, or the binder started.",
    )
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready.",
    )


def parse_stream_policy(obj: dict[str, Any]) -> StreamPolicySpec:
    """The spec of a StreamPolicy object; InvalidInput says which field is wrong."""
    return parse(StreamPolicySpec, obj, "is missing")
