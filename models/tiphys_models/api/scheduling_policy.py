"""SchedulingPolicy, `tiphys.io/v1alpha1`: which pods, which policy, how far it may go."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from tiphys_models.api.base import Api, CelRule, Condition, Integer, ModelName, parse
from tiphys_models.api.decider_names import PlacementPolicyName
from tiphys_models.api.pod_selector import (
    PodSelector,
)
from tiphys_models.api.reasons import FallbackReason
from tiphys_models.api.selection import SelectionStatus, SelectSpec
from tiphys_models.placement.objectives import Objective, judge_of
from tiphys_models.placement.registry import PolicyName, is_learned

KIND = "SchedulingPolicy"
PLURAL = "schedulingpolicies"

Mode = Literal["Off", "Shadow", "Canary", "Active"]


class Canary(Api):
    """Share of pods decided in mode Canary."""

    percent: Integer = Field(
        ge=1, le=99, description="Percent of selected pods, chosen by a hash of the pod's uid, that the policy decides."
    )


class Guardrails(Api):
    """Limits outside the policy, whatever it says."""

    max_reading_age_seconds: Integer = Field(
        default=60, ge=5, le=3600, description="Node readings older than this many seconds count as missing. Default 60."
    )
    max_node_share_percent: Integer = Field(
        default=100,
        ge=1,
        le=100,
        description=(
            "A node that already holds more than this percent of the function's unfinished pods is ranked behind the others. "
            "Default 100: no limit."
        ),
    )


class Hints(Api):
    """What is written on pods for others to read. Written by the operator, in mode Active, or Canary on pods of the canary's share."""

    do_not_disrupt: bool = Field(
        default=False,
        description=(
            "Write `karpenter.sh/do-not-disrupt` on pods that end by themselves: the run time that nine in ten ended pods of the same "
            "application had, once three have ended, a day at the most. Never over what a user wrote. Default false."
        ),
    )
    deletion_cost: bool = Field(
        default=False,
        description=(
            "Write `controller.kubernetes.io/pod-deletion-cost` on pods of ReplicaSets: lowest for pods without calls and where a node "
            "could go, highest for pods with calls and where a node stays anyway. Never over what a user wrote. Default false."
        ),
    )

    @property
    def any(self) -> bool:
        """Whether anything is to be written."""
        return self.do_not_disrupt or self.deletion_cost


class SchedulingPolicySpec(Api):
    """What the user wants."""

    selector: PodSelector = Field(
        default_factory=PodSelector,
        json_schema_extra={"default": {}},
        description="Which pods of this namespace the policy decides. Empty: all of them. The more specific of two policies wins.",
    )
    mode: Mode = Field(
        default="Shadow",
        description=(
            "Off (in quotes: plain YAML reads it as false): no effect. "
            "Shadow: answers stay neutral, what the policy would have said is logged and compared with the node bound. "
            "Canary: decides a share of the pods. Active: decides all of them. Default Shadow."
        ),
    )
    policy: PlacementPolicyName = Field(
        default=PolicyName.ESTIMATOR,
        description=(
            "Placement policy: `tiphys policies` lists them, those of installed packages included. `faasrank` is learned and decides by "
            "`model`. Default estimator. Not together with `select`."
        ),
    )
    objective: Objective = Field(
        default="completion",
        description=(
            "What placements are to be good for. completion: the policy as it is. cost: that nodes can go soon, for pods that stay: "
            "`lifetimes` decides instead of `estimator`, `lifetimes` and `most-allocated` as they are. both: `estimator`, with the "
            "seconds that a pod prolongs the life of its node added at `nodeSecondWorthMilliseconds`. Without `policy`, cost means "
            "`lifetimes` and both means `estimator`. Other policies can completion only. Default completion. Not together with `select`."
        ),
    )
    node_second_worth_milliseconds: Integer = Field(
        default=100,
        ge=0,
        le=1_000_000,
        description=(
            "With objective both: how many milliseconds of completion of one pod a second of a node's life is worth. Default 100: a pod "
            "may take a second longer where ten seconds of a node are saved."
        ),
    )
    select: SelectSpec | None = Field(
        default=None, description="Instead of `policy`: the operator chooses one every interval, and shows in status which and why."
    )
    model: ModelName | None = Field(
        default=None,
        description=(
            "Name of the model of a learned policy: a LearnedModel of Tiphys' own namespace, else a mounted file, else a shipped one. "
            "Default: the policy's own name."
        ),
    )
    fallback: PolicyName = Field(
        default=PolicyName.WARM_FIRST,
        description="Rule that answers while the policy cannot: model missing or refused, readings missing. Default warm-first.",
    )
    canary: Canary | None = Field(default=None, description="Needed in mode Canary, forbidden otherwise.")
    guardrails: Guardrails = Field(default_factory=Guardrails, json_schema_extra={"default": {}}, description="Limits outside the policy.")
    hints: Hints = Field(
        default_factory=Hints,
        json_schema_extra={"default": {}},
        description=(
            "What is written on the selected pods for those who evict and delete pods. Needs `hints.enabled` of the chart. Nothing by "
            "default; what was written is taken off when it is wanted no longer."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> SchedulingPolicySpec:
        for rule in CEL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    @property
    def judge(self) -> str | None:
        """Name of the policy that judges by the objective; None if the chosen one cannot."""
        return judge_of(str(self.policy), self.objective, chosen="policy" in self.model_fields_set)

    def stand_in(self, reason: str) -> str:
        """Name of the rule that answers while the policy cannot: who cannot see processor time still has the books."""
        return str(PolicyName.WARM_FIRST_WAITS if reason == FallbackReason.CPU_MISSING else self.fallback)

    @property
    def model_name(self) -> str | None:
        """Name of the artifact it needs; None for rules."""
        return None if self.select is not None else (self.model or str(self.policy)) if is_learned(self.policy) else None


_LEARNED = [str(name) for name in PolicyName if is_learned(name)]
CEL_RULES = (
    CelRule(
        "(has(self.mode) && self.mode == 'Canary') == has(self.canary)",
        "canary.percent belongs to mode Canary: set both or neither",
        lambda s: (s.mode == "Canary") == (s.canary is not None),
    ),
    CelRule(
        f"!has(self.fallback) || !(self.fallback in {_LEARNED})",
        "fallback must be a rule, not a learned policy: it answers when models cannot",
        lambda s: not is_learned(s.fallback),
    ),
    CelRule(
        "!(has(self.select) && has(self.policy))",
        "policy and select exclude each other: remove one",
        lambda s: s.select is None or "policy" not in s.model_fields_set,
    ),
    CelRule(
        "!has(self.select) || !has(self.objective) || self.objective == 'completion'",
        "objective and select exclude each other: select has objectives of its own",
        lambda s: s.select is None or s.objective == "completion",
    ),
    CelRule(
        f"!has(self.model) || (has(self.policy) && self.policy in {_LEARNED})",
        "model belongs to a learned policy: remove it or choose such a policy",
        lambda s: s.model is None or is_learned(s.policy),
    ),
)


class DecisionCounters(Api):
    """What the extender reported since the operator started to count."""

    scored: int = Field(default=0, ge=0, description="Answers by the policy.")
    fallback: int = Field(default=0, ge=0, description="Answers by the fallback rule.")
    neutral: int = Field(default=0, ge=0, description="Answers that made no difference between nodes, shadow ones included.")
    shadow_agreed: int = Field(default=0, ge=0, description="Shadow decisions whose first choice became the pod's node.")
    shadow_compared: int = Field(default=0, ge=0, description="Shadow decisions whose pod has been bound.")


class SchedulingPolicyStatus(Api):
    """What the operator found."""

    observed_generation: int = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    active_policy: str = Field(default="", max_length=63, description="Policy or planner that answers now: the chosen one or the fallback.")
    selection: SelectionStatus | None = Field(default=None, description="What `spec.select` led to; absent without it.")
    model_digest: str = Field(default="", max_length=64, description="sha256 of the loaded weights; empty for rules.")
    matching_pods: int = Field(default=0, ge=0, description="Unfinished pods of the namespace that the selector matches.")
    routed_pods: int = Field(default=0, ge=0, description="Those of them that name our scheduler.")
    decisions: DecisionCounters = Field(default_factory=DecisionCounters, description="Counters of answers.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Ready, Conflict, Routed, ModelLoaded, Selecting, Hinting.",
    )


def parse_spec(obj: dict[str, Any]) -> SchedulingPolicySpec:
    """The spec of a SchedulingPolicy object; InvalidInput says which field is wrong."""
    return parse(SchedulingPolicySpec, obj, "is missing; `spec: {}` is enough for all defaults")
