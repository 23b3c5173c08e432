"""ScalingPolicy, `tiphys.io/v1alpha1`: which workload, what latency is wanted, how far replicas and CPU may go, and who decides."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from tiphys_models.api.base import GROUP, VERSION, Api, CelRule, Integer, ObjectName, parse, whole_number, without_nulls
from tiphys_models.api.learned_model import SCALING_AGENTS

KIND = "ScalingPolicy"
PLURAL = "scalingpolicies"
SCALING_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
PAUSE_ANNOTATION = "tiphys.io/paused"
"""`"true"`: nothing is changed, whatever the mode; decisions go on being shown."""
CPU_STEP_MILLI = 10
"""What the systemd cgroup driver rounds CPU quotas to: finer sizes would never be reached."""
MAX_REPLICAS = 10_000
RETRY_ANNOTATION = "tiphys.io/retry-agent"
"""Another value than the one at its rollback gives an agent another chance."""

ScalingMode = Literal["Off", "Recommend", "Shadow", "Canary", "Active"]
ACTING_MODES: tuple[ScalingMode, ...] = ("Canary", "Active")
"""Modes in which decisions are carried out."""
MetricName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", min_length=1, max_length=200)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", min_length=1, max_length=63)]
AgentName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)]
# the bounds first: pydantic knows no schema for bounds on a validator inside "or null"
AgentKind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?[+]?$", min_length=1, max_length=63)]
WindowSeconds = Annotated[int, Field(ge=0, le=3600), BeforeValidator(whole_number)]
Percent = Annotated[int, Field(ge=0, le=100), BeforeValidator(whole_number)]
Microseconds = Annotated[int, Field(ge=1, le=600_000_000), BeforeValidator(whole_number)]
Millis = Annotated[int, Field(ge=CPU_STEP_MILLI, le=256_000), BeforeValidator(whole_number)]


class TargetRef(Api):
    """Reference to the workload that is scaled: a Deployment or a StatefulSet."""

    api_version: Annotated[str, StringConstraints(pattern=r"^apps/v1$", max_length=63)] = Field(
        default="apps/v1", description="Always apps/v1."
    )
    kind: Literal["Deployment", "StatefulSet"] = Field(description="Deployment or StatefulSet.")
    name: ObjectName = Field(description="Name, in the policy's own namespace.")


class LatencyMetrics(Api):
    """Where requests are counted."""

    preset: Literal["tiphys", "otel", "istio", "linkerd"] = Field(
        default="tiphys",
        description=(
            "Whose histogram: tiphys: http_request_duration_seconds with the labels namespace and pod. otel: the semantic conventions' "
            "name, same labels. istio, linkerd: the proxies', by workload. The fields below override it."
        ),
    )
    histogram: MetricName | None = Field(default=None, description="Name of another histogram, without _bucket.")
    unit: Literal["seconds", "milliseconds"] | None = Field(default=None, description="Unit of its bucket edges.")
    matchers: Annotated[dict[LabelName, Annotated[str, StringConstraints(max_length=253)]], BeforeValidator(without_nulls)] = Field(
        default_factory=dict,
        max_length=16,
        description=("Labels its series must have beside those of the preset, exactly. That of the namespace is always the policy's own."),
    )
    pod_label: LabelName | None = Field(default=None, description="Label that holds the pod's name.")
    in_flight: MetricName | None = Field(
        default=None,
        description="Gauge of requests that were taken and not yet answered. Without it a growing queue is seen only once it is served.",
    )
    max_fall_percent: Percent = Field(
        default=50,
        description=(
            "By how much of itself the measured load may fall from one window to the next; more is believed once a second complete window "
            "tells it. 100: at once. Default 50."
        ),
    )


class LatencyObjective(Api):
    """What is wanted of the service."""

    latency_milliseconds: Integer = Field(ge=1, le=600_000, description="Requests should take no longer. Must be an edge of the histogram.")
    percentile: Integer = Field(default=90, ge=50, le=99, description="Percent of a window's requests that must keep it. Default 90.")
    attainment_percent: Integer = Field(
        default=95, ge=50, le=99, description="Percent of windows that must be good. The agent's card maps it to what a violation costs it."
    )
    metrics: LatencyMetrics = Field(
        default_factory=LatencyMetrics, json_schema_extra={"default": {}}, description="Where requests are counted."
    )


class ScalingRate(Api):
    """So much change within a period."""

    type: Literal["Units", "Percent"] = Field(description="Units: pods, or millicores of a pod. Percent: of the value when it began.")
    value: Integer = Field(ge=1, le=100_000, description="How much.")
    period_seconds: Integer = Field(ge=1, le=1800, description="Within how many seconds.")


class ScalingRules(Api):
    """Rules for one direction, as in an HPA's behavior. What is not set has the default of its dimension and direction (limits.py)."""

    stabilization_window_seconds: WindowSeconds | None = Field(
        default=None, description="Up: the least wanted within it counts; down: the most wanted."
    )
    select_policy: Literal["Max", "Min", "Disabled"] = Field(
        default="Max", description="Which of several rates counts: the one that allows most, least, or no change in this direction."
    )
    policies: list[ScalingRate] = Field(
        default_factory=list, max_length=8, json_schema_extra={"x-kubernetes-list-type": "atomic"}, description="Rates."
    )
    tolerance_percent: Percent | None = Field(default=None, description="Smaller changes are not made.")


class ScalingBehavior(Api):
    """Rules for both directions."""

    scale_up: ScalingRules = Field(default_factory=ScalingRules, json_schema_extra={"default": {}}, description="Growing.")
    scale_down: ScalingRules = Field(default_factory=ScalingRules, json_schema_extra={"default": {}}, description="Shrinking.")


HORIZONTAL_RULES = (
    CelRule(
        "self.minReplicas <= self.maxReplicas",
        "minReplicas must not be above maxReplicas",
        lambda h: h.min_replicas <= h.max_replicas,
    ),
)


class Horizontal(Api):
    """Horizontal scaling: fewest and most pods, and how fast their number may change."""

    min_replicas: Integer = Field(default=1, ge=1, le=MAX_REPLICAS, description="Fewest pods. Default 1.")
    max_replicas: Integer = Field(default=10, ge=1, le=MAX_REPLICAS, description="Most pods. Default 10.")
    behavior: ScalingBehavior = Field(
        default_factory=ScalingBehavior,
        json_schema_extra={"default": {}},
        description=(
            "Defaults as HPA's: up at once, by 4 pods or 100 percent in 15 s; down after 300 s. Tolerance 0: agents round up already."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Horizontal:
        for rule in HORIZONTAL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


VERTICAL_RULES = (
    CelRule(
        "self.minCpuMilli <= self.maxCpuMilli",
        "minCpuMilli must not be above maxCpuMilli",
        lambda v: v.min_cpu_milli <= v.max_cpu_milli,
    ),
    CelRule(
        f"self.minCpuMilli % {CPU_STEP_MILLI} == 0 && self.maxCpuMilli % {CPU_STEP_MILLI} == 0",
        f"CPU bounds are multiples of {CPU_STEP_MILLI} millicores: cgroup drivers round to that",
        lambda v: not (v.min_cpu_milli % CPU_STEP_MILLI or v.max_cpu_milli % CPU_STEP_MILLI),
    ),
)


class Vertical(Api):
    """How much CPU a pod has, changed in place."""

    container: ObjectName | None = Field(default=None, description="Container that is resized. Default: the pod's first.")
    min_cpu_milli: Millis = Field(default=50, description="Smallest CPU limit, in millicores. Default 50.")
    max_cpu_milli: Millis = Field(default=1000, description="Largest CPU limit, in millicores. Default 1000.")
    behavior: ScalingBehavior = Field(
        default_factory=ScalingBehavior,
        json_schema_extra={"default": {}},
        description=(
            "Defaults: up at once, tenfold in 15 s at most; down after 30 s, to half in 15 s at most; dead band (tolerance) 7 percent."
        ),
    )
    between_windows: Literal["Raise", "Wait"] = Field(
        default="Raise",
        description=(
            "Raise: where more arrives than fits and requests already wait longer than the objective, CPU grows before the window ends; "
            "it takes objective.metrics.inFlight. Wait: sizes change at the end of a window only. Default Raise."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Vertical:
        for rule in VERTICAL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class Rollback(Api):
    """When the rule takes over from a learned agent."""

    windows: Integer = Field(default=40, ge=4, le=240, description="Over so many of the last windows both are compared. Default 40.")
    margin_percent: Integer = Field(
        default=5,
        ge=1,
        le=100,
        description=(
            "The rule takes over once its mean reward over these windows would have been better by more than this, in percent of the "
            "mean of a usual window's cost and the price of a violated one. Default 5: two violated windows in 40."
        ),
    )


class AgentRef(Api):
    """Reference to the agent that decides, with what it needs to know."""

    kind: AgentKind = Field(
        default="rule",
        description=(
            "rule, rule+, rule-horizontal, hpa, rps-hpa, naive, a learned agent, or one that an installed package offers. rule+ holds as "
            "much headroom as objective.attainmentPercent takes. Default rule."
        ),
    )
    request_cpu_microseconds: Microseconds | None = Field(
        default=None,
        description=(
            "CPU time that one request takes, until 30 requests were measured. Default: measured from the start, as CPU used by requests "
            "answered."
        ),
    )
    model: AgentName | None = Field(
        default=None, description="LearnedModel with a learned agent's weights, in the namespace of the release. Default: those that ship."
    )
    learning: Literal["Frozen", "Collect"] = Field(
        default="Frozen",
        description=(
            "Frozen: it keeps the version of its model that it decides with, and its windows teach nobody. Collect: its windows are served "
            "to the trainer, and newer versions of its model are taken. Default Frozen."
        ),
    )
    rollback: Rollback = Field(
        default_factory=Rollback, json_schema_extra={"default": {}}, description="When the rule takes over from a learned agent."
    )


CANARY_RULES = (
    CelRule(
        "self.washOutWindows < self.blockWindows",
        "washOutWindows must be below blockWindows: else nothing of a block is compared",
        lambda c: c.wash_out_windows < c.block_windows,
    ),
)


class ScalingCanary(Api):
    """Share of time in which the agent decides; in the rest the calibrated rule does, within the same limits and masks."""

    percent: Integer = Field(
        ge=1,
        le=99,
        description="Percent of blocks in which the agent decides, chosen by a hash of the policy's uid and the block's number.",
    )
    block_windows: Integer = Field(default=20, ge=2, le=2000, description="Windows of a block. Default 20.")
    wash_out_windows: Integer = Field(
        default=4,
        ge=0,
        le=1000,
        description="First windows after a change of group: decided by the new one, not compared, because they show the former. Default 4.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ScalingCanary:
        for rule in CANARY_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class ScalingPolicySpec(Api):
    """What the user wants."""

    target_ref: TargetRef = Field(description="The workload.")
    mode: ScalingMode = Field(
        default="Recommend",
        description=(
            "Off (in quotes: plain YAML reads it as false): nothing is measured. Recommend, Shadow: the agent's decisions stand in status "
            "beside the rule's and change nothing. Canary: decisions are carried out, the agent's in a random share of blocks of windows "
            "and the rule's in the others. Active: the agent's are carried out. Default Recommend."
        ),
    )
    canary: ScalingCanary | None = Field(default=None, description="Needed in mode Canary, forbidden otherwise.")
    objective: LatencyObjective = Field(description="What is wanted of the service.")
    horizontal: Horizontal | None = Field(default=None, description="How many pods; without it their number is left alone.")
    vertical: Vertical | None = Field(default=None, description="How much CPU a pod has; without it sizes are left alone.")
    agent: AgentRef = Field(default_factory=AgentRef, json_schema_extra={"default": {}}, description="Who decides.")
    interval_seconds: Integer = Field(
        default=15, ge=5, le=300, description="Window of measurement and time between two decisions. Default 15."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ScalingPolicySpec:
        for rule in CEL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    @property
    def acts(self) -> bool:
        """Whether decisions are to be carried out."""
        return self.mode in ACTING_MODES


CEL_RULES = (
    CelRule(
        "(has(self.mode) && self.mode == 'Canary') == has(self.canary)",
        "canary belongs to mode Canary: set both or neither",
        lambda s: (s.mode == "Canary") == (s.canary is not None),
    ),
    CelRule(
        "has(self.horizontal) || has(self.vertical)",
        "set horizontal, vertical or both: otherwise there is nothing to scale",
        lambda s: s.horizontal is not None or s.vertical is not None,
    ),
    CelRule(
        f"!has(self.agent.model) || self.agent.kind in {list(SCALING_AGENTS)}",
        "agent.model is for learned agents only: rules take no weights",
        lambda s: s.agent.model is None or s.agent.kind in SCALING_AGENTS,
    ),
)


def parse_scaling(obj: dict[str, Any]) -> ScalingPolicySpec:
    """The spec of a ScalingPolicy object; InvalidInput says which field is wrong."""
    return parse(ScalingPolicySpec, obj, "is missing")
