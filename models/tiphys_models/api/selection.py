"""`spec.select` of a SchedulingPolicy and what its status tells: who chooses among which candidates, and what came of it.

The names stand here and not in the registries of planners and selectors, because the extender reads objects and imports no planner;
a test holds both lists together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from tiphys_models.api.base import Api, CelRule, Integer
from tiphys_models.policies.registry import PolicyName


class PlannerName(StrEnum):
    """Candidates that plan a whole interval; they are never asked pod by pod."""

    ARIMA_ACO = "arima-aco"
    LSTM_ACO = "lstm-aco"
    DECISION_NN = "decision-nn"
    SEMI_DIRECT = "semi-direct"
    GRAF = "graf"
    GOBI = "gobi"
    GOSH = "gosh"
    COST_LEAN = "cost-lean"
    ENERGY_LEAN = "energy-lean"
    ONE_PER_HOST = "one-per-host"


class SelectorName(StrEnum):
    """Who may choose. `metanet-paper` is not among them: its input is made for a hundred hosts exactly."""

    METANET = "metanet"
    DQN = "dqn"
    UCB = "ucb"
    PREVIEW = "preview"


CANDIDATES: tuple[str, ...] = tuple(str(name) for name in (*PlannerName, *PolicyName))
HEURISTICS = (PlannerName.COST_LEAN, PlannerName.ENERGY_LEAN, PlannerName.ONE_PER_HOST)


def is_planner(candidate: str) -> bool:
    """Whether it answers by a published plan and not pod by pod."""
    return candidate in set(PlannerName)


def _known(name: str) -> str:
    if name not in CANDIDATES:
        raise ValueError(f"must be one of {', '.join(CANDIDATES)}")
    return name


Candidate = Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(CANDIDATES)})]


class SelectionWeights(Api):
    """How much each part of the cost counts; only proportions matter."""

    cost: Integer = Field(default=1, ge=0, le=100, description="Bill of the nodes that are in use. Default 1.")
    energy: Integer = Field(default=1, ge=0, le=100, description="Energy of the nodes that are in use. Default 1.")
    response: Integer = Field(default=1, ge=0, le=100, description="Seconds from creation to end of a pod. Default 1.")
    sla: Integer = Field(
        default=1, ge=0, le=100, description="Pods that took longer than `slaFactor` times what their function usually runs. Default 1."
    )

    @model_validator(mode="after")
    def _consistent(self) -> SelectionWeights:
        for rule in WEIGHTS_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


WEIGHTS_RULES = (
    CelRule(
        "self.cost + self.energy + self.response + self.sla > 0",
        "at least one weight must be above 0",
        lambda w: w.cost + w.energy + w.response + w.sla > 0,
    ),
)


class SelectSpec(Api):
    """Choose the policy anew every interval."""

    by: SelectorName = Field(
        description=(
            "Who chooses. preview: expected cost of every candidate's plan in closed form, corrected by what was measured; needs no "
            "training. ucb: a bandit on measured cost. metanet, dqn: learned; they need their trained weights."
        )
    )
    among: list[Candidate] = Field(
        default_factory=lambda: [str(name) for name in HEURISTICS],
        min_length=2,
        max_length=len(CANDIDATES),
        json_schema_extra={"x-kubernetes-list-type": "set", "default": [str(name) for name in HEURISTICS]},
        description="Planners and placement policies to choose among. Default: the three heuristics, which cost nothing to run.",
    )
    interval_seconds: Integer = Field(default=10, ge=2, le=3600, description="Time between two choices. Default 10.")
    margin_percent: Integer = Field(
        default=5,
        ge=0,
        le=100,
        description="A switch must promise to save so much of the predicted cost of the policy that is active. Default 5.",
    )
    max_switches_per_hour: Integer = Field(default=12, ge=0, le=3600, description="No more switches than this in an hour. Default 12.")
    freeze: bool = Field(default=False, description="Keep the active policy and learn nothing; predictions are still shown. Default false.")
    sla_factor: Integer = Field(
        default=3, ge=1, le=100, description="A pod is late after so many times its function's usual run time. Default 3."
    )
    weights: SelectionWeights = Field(
        default_factory=SelectionWeights,
        # in full: the API server judges a default by the rule before it fills in the fields' own
        json_schema_extra={"default": {"cost": 1, "energy": 1, "response": 1, "sla": 1}},
        description="How much each part of the cost counts.",
    )

    @model_validator(mode="after")
    def _no_twins(self) -> SelectSpec:
        if len(set(self.among)) != len(self.among):
            raise ValueError("among names a candidate twice")
        return self


class PredictedCost(Api):
    """What a candidate was expected to cost in the last interval."""

    candidate: str = Field(max_length=63, description="Name as in `among`.")
    cost: float = Field(
        description="Weighted cost of the interval's decision until its pods have ended; comparable between candidates only."
    )


class Switch(Api):
    """A change of the active policy."""

    former: str = Field(alias="from", default="", max_length=63, description="Policy before; empty at the first choice.")
    to: str = Field(max_length=63, description="Policy after.")
    reason: str = Field(max_length=63, description="Fixed word, documented.")
    message: str = Field(default="", max_length=512, description="The same for people.")
    at: str = Field(max_length=64, json_schema_extra={"format": "date-time"}, description="When.")


class SelectionStatus(Api):
    """The last interval's choice."""

    interval: int = Field(default=0, ge=0, description="Number of the interval since the policy selects.")
    reason: str = Field(default="", max_length=63, description="Why this candidate: fixed word, documented.")
    predicted_cost: list[PredictedCost] = Field(
        default_factory=list,
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["candidate"]},
        description="Predicted cost of every candidate, as far as the selector predicts.",
    )
    measured_interval: int | None = Field(default=None, ge=0, description="The last interval whose pods have all ended.")
    measured_candidate: str = Field(default="", max_length=63, description="Who decided it.")
    measured_cost: float | None = Field(default=None, description="What it cost, in the unit of `predictedCost`.")
    last_switch: Switch | None = Field(default=None, description="The last change of the active policy.")
    switches: int = Field(default=0, ge=0, description="Switches since the policy selects.")
    learned: int = Field(default=0, ge=0, description="Decisions whose measured cost the selector has learned from.")
    plan: str = Field(
        default="", max_length=253, description="PlacementPlan in force, in this namespace; empty while a placement policy decides."
    )
