"""Status of a ScalingPolicy: the last decision from wish to deed, and what the limits must remember."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue, StringConstraints

from tiphys_models.api.base import Api, Condition
from tiphys_models.api.comparison import ComparisonStatus
from tiphys_models.api.comparison_memory import ComparisonMemory
from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.scaling.limits import REMEMBERED_MAX

_LIST: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
_TIME: dict[str, JsonValue] = {"format": "date-time"}
_Word = Annotated[str, StringConstraints(max_length=120)]


class Size(Api):
    """Pods and what each has."""

    replicas: int = Field(ge=0, description="Pods.")
    cpu_milli: int = Field(default=0, ge=0, description="CPU limit of each, in millicores; 0: none.")


class MeasuredWindow(Api):
    """Measurements of the last window."""

    until: str = Field(default="", max_length=64, description="Time of the newest sample.")
    requests: int = Field(default=0, ge=0, description="Requests that arrived in the window.")
    good: int = Field(default=0, ge=0, description="Those answered within the objective.")
    latency_milliseconds: int | None = Field(default=None, description="Upper edge of the bucket that holds the objective's percentile.")
    used_milli: int | None = Field(default=None, description="CPU that all pods used together, in millicores.")
    throttled_percent: int | None = Field(default=None, description="CFS periods in which a pod was stopped.")


class LastDecision(Api):
    """One window's decision, from what the agent wanted to what was done."""

    number: int = Field(default=0, ge=0, description="Counts the policy's decisions.")
    at: str = Field(max_length=64, json_schema_extra=_TIME, description="When; windows that came to the same since are not written.")
    phase: str = Field(max_length=63, description="Recommended, Held, Intended (about to be done), Done, Refused: the fate of `applied`.")
    agent: str = Field(default="", max_length=63, description="Who decided; raise: CPU grew between two windows.")
    outcome: str = Field(
        default="",
        max_length=63,
        description="rule: it was the rule's turn. learned: the agent decided. fallback: it was the agent's turn, and the rule decided.",
    )
    outcome_reason: str = Field(
        default="",
        max_length=63,
        description="Of a fallback: policy-error, no-answer, deadline or worse-than-rule; or control, in a control block.",
    )
    group: str = Field(default="", max_length=63, description="In mode Canary: treated or control.")
    state_digest: str = Field(default="", max_length=64, description="Digest of what the agent saw.")
    model_digest: str = Field(default="", max_length=64, description="sha256 of the agent's weights; empty for rules.")
    window: MeasuredWindow | None = Field(default=None, description="What was measured.")
    former: Size = Field(alias="from", description="What was there.")
    wanted: Size | None = Field(default=None, description="What the agent wanted.")
    clamped: Size | None = Field(default=None, description="After tolerance, stabilisation, rates and bounds.")
    applied: Size = Field(description="After masks: what is done in mode Active, and recommended otherwise.")
    would: Size | None = Field(
        default=None, description="What the other of agent and rule would have done, after the same limits and masks; absent: nothing."
    )
    values: list[_Word] = Field(
        default_factory=list, max_length=64, json_schema_extra=_LIST, description="The agent's value of each action."
    )
    masked: list[_Word] = Field(
        default_factory=list, max_length=16, json_schema_extra=_LIST, description="Moves that were not possible, and why."
    )
    reasons: list[_Word] = Field(default_factory=list, max_length=16, json_schema_extra=_LIST, description="Fixed words, documented.")
    message: str = Field(default="", max_length=512, description="The same for people.")
    mac: str = Field(
        default="",
        max_length=160,
        description="Of an intent: the operator's signature. Without it, and with a wrong one, it is decided anew instead of done.",
    )


class RememberedValue(Api):
    """A value at a time."""

    at: float = Field(description="Seconds since 1970.")
    value: int = Field(description="Pods, or steps of 10 millicores.")


class LimitsMemory(Api):
    """What the clamps of one dimension remember across restarts."""

    lowest: list[RememberedValue] = Field(
        default_factory=list,
        max_length=REMEMBERED_MAX,
        json_schema_extra=_LIST,
        description="Wishes that can still be an up window's least.",
    )
    highest: list[RememberedValue] = Field(
        default_factory=list,
        max_length=REMEMBERED_MAX,
        json_schema_extra=_LIST,
        description="Wishes that can still be a down window's most.",
    )
    changes: list[RememberedValue] = Field(
        default_factory=list, max_length=REMEMBERED_MAX, json_schema_extra=_LIST, description="Steps within the periods of rates."
    )


class Blocked(Api):
    """A move that failed, or undoes what was just done: not to be tried before its time."""

    move: str = Field(max_length=63, description="replicas-up, replicas-down, cpu-up or cpu-down.")
    bound: int = Field(ge=0, description="No further than so many pods or millicores.")
    reason: str = Field(max_length=63, description="Fixed word, documented.")
    until: float = Field(description="Seconds since 1970: tried again afterwards.")
    tries: int = Field(default=1, ge=1, description="How often it failed in a row; each time it waits twice as long.")


class RolledBack(Api):
    """The rule has taken over."""

    digest: str = Field(max_length=64, description="sha256 of the weights that were worse.")
    at: float = Field(description="Seconds since 1970.")
    retry: str = Field(default="", max_length=63, description="Value of the annotation tiphys.io/retry-agent then.")
    message: str = Field(default="", max_length=256, description="By how much.")


class ScalingMemory(Api):
    """What the operator must not forget of a policy."""

    replicas: LimitsMemory = Field(default_factory=LimitsMemory, description="Limits of the number of pods.")
    cpu: LimitsMemory = Field(default_factory=LimitsMemory, description="Limits of CPU.")
    request_cpu_microseconds: int | None = Field(default=None, description="CPU time of a request, as it was last sized by.")
    blocked: list[Blocked] = Field(
        default_factory=list, max_length=8, json_schema_extra=_LIST, description="Moves that failed or must wait."
    )
    overridden: list[float] = Field(
        default_factory=list, max_length=8, json_schema_extra=_LIST, description="When somebody else undid what was done, in the last hour."
    )
    rolled_back: RolledBack | None = Field(default=None, description="Set while the rule decides instead of the agent.")
    comparison: ComparisonMemory | None = Field(default=None, description="Sums of the last canary's groups.")
    learned: LearnedMemory | None = Field(default=None, description="What the windows have taught of the service.")


class AgentSeen(Api):
    """The weights of a learned agent."""

    model: str = Field(default="", max_length=63, description="LearnedModel; empty: what ships.")
    digest: str = Field(max_length=64, description="sha256 of the weights.")
    config_map: str = Field(default="", max_length=253, description="Where they are, so that a frozen version is found again.")
    compared: int = Field(default=0, ge=0, description="Windows in which it was compared with the rule.")
    ahead_permille: int | None = Field(
        default=None, description="How much better its mean reward was than the rule's would have been, in thousandths."
    )


class PodSizes(Api):
    """Counts of the workload's pods, by how far they have been resized."""

    total: int = Field(default=0, ge=0, description="Unfinished pods.")
    ready: int = Field(default=0, ge=0, description="Those that are Ready.")
    sized: int = Field(default=0, ge=0, description="Those that have the wanted CPU.")
    deferred: int = Field(default=0, ge=0, description="Resizes that fit the node, but not now.")
    infeasible: int = Field(default=0, ge=0, description="Resizes that never fit the node.")
    in_progress: int = Field(default=0, ge=0, description="Resizes under way.")
    failing: int = Field(default=0, ge=0, description="Resizes that the kubelet tries again after an error.")


class ScalingPolicyStatus(Api):
    """What the operator found, decided and did."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    current: Size | None = Field(default=None, description="What is there.")
    desired: Size | None = Field(default=None, description="What should be there; in mode Active it is carried out.")
    pods: PodSizes | None = Field(default=None, description="The workload's pods.")
    last_decision: LastDecision | None = Field(default=None, description="The last decision that was news; windows since came to the same.")
    agent: AgentSeen | None = Field(default=None, description="The weights of a learned agent.")
    comparison: ComparisonStatus | None = Field(default=None, description="What the last canary has shown so far.")
    memory: ScalingMemory = Field(default_factory=ScalingMemory, description="What the operator must not forget.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready, MetricsAvailable, Conflict, Limited, Resizing, ModelLoaded, RolledBack.",
    )
