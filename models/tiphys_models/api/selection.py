"""`spec.select` of a SchedulingPolicy and what its status tells: who chooses among which candidates, and what came of it.

The names stand here and not in the registries of planners and selectors, because the extender reads objects and imports no planner;
a test holds both lists together.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from tiphys_models.api.base import Api, CelRule, Integer, ModelName
from tiphys_models.api.comparison import ComparisonStatus
from tiphys_models.api.decider_names import DeciderName
from tiphys_models.placement.registry import REGISTRY as PLACEMENT
from tiphys_models.placement.registry import PolicyName
from tiphys_models.seats.modes import Mode


class PlannerName(StrEnum):
    """Our own candidates that plan a whole interval; they are never asked pod by pod."""

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
    """Selectors of this package. `metanet-paper` is not among them: its input is made for a hundred hosts exactly."""

    METANET = "metanet"
    DQN = "dqn"
    UCB = "ucb"
    PREVIEW = "preview"


PLANNERS: frozenset[str] = frozenset(map(str, PlannerName))
CANDIDATES: tuple[str, ...] = tuple(str(name) for name in (*PlannerName, *PolicyName))
"""Candidates of this package: all planners and all placement policies."""
CANDIDATES_MAX = 32
"""Most candidates, as many as `status.selection.predictedCost` can hold."""
HEURISTICS = (PlannerName.COST_LEAN, PlannerName.ENERGY_LEAN, PlannerName.ONE_PER_HOST)


def is_planner(candidate: str) -> bool:
    """Whether it answers by a published plan and not pod by pod: every candidate is one or the other."""
    return PLACEMENT.entry(candidate) is None


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


CANARY_RULES = (
    CelRule(
        "self.washOutIntervals < self.blockIntervals",
        "washOutIntervals must be below blockIntervals: else nothing of a block is compared",
        lambda c: c.wash_out_intervals < c.block_intervals,
    ),
)


class SelectCanary(Api):
    """Share of time in which the selector's choice is obeyed; in the rest the rule's candidate decides."""

    percent: Integer = Field(
        ge=1,
        le=99,
        description="Percent of blocks in which the selector is obeyed, chosen by a hash of the policy's uid and the block's number.",
    )
    block_intervals: Integer = Field(default=30, ge=2, le=2000, description="Intervals of a block. Default 30.")
    wash_out_intervals: Integer = Field(
        default=6,
        ge=0,
        le=1000,
        description=(
            "First intervals after a change of group: decided by the new one and not compared, because they show the former. Default 6."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> SelectCanary:
        for rule in CANARY_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class SelectSpec(Api):
    """Choose the policy anew every interval."""

    by: DeciderName = Field(
        description=(
            "Who chooses. preview: expected cost of every candidate's plan in closed form, corrected by what was measured; needs no "
            "training. ucb: a bandit on measured cost. metanet, dqn: learned; they need their trained weights. Or the selector of an "
            "installed package: `tiphys policies` lists them."
        )
    )
    among: list[DeciderName] = Field(
        default_factory=lambda: [str(name) for name in HEURISTICS],
        min_length=2,
        max_length=CANDIDATES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "set", "default": [str(name) for name in HEURISTICS]},
        description=(
            "Planners and placement policies to choose among, those of installed packages included. Default: the three heuristics, which "
            "cost nothing to run."
        ),
    )
    model: ModelName | None = Field(
        default=None,
        description=(
            "Name of the weights of a learned selector: a LearnedModel of the release's namespace, else a mounted one, else what ships. "
            "Default: the selector's own name. Learned planners in `among` are found under their own names in the same way."
        ),
    )
    mode: Mode = Field(
        default="Active",
        description=(
            "Off (in quotes: plain YAML reads it as false): `rule` decides, the selector is not asked. Shadow: `rule` decides, what the "
            "selector would choose stands in status and in the decision log. Canary: the selector is obeyed in a random share of blocks of "
            "intervals, `rule` decides in the others. Active: the selector is obeyed. Default Active."
        ),
    )
    canary: SelectCanary | None = Field(default=None, description="Needed in mode Canary, forbidden otherwise.")
    rule: DeciderName | None = Field(
        default=None,
        description=(
            "Candidate that decides where the selector does not: in modes Off and Shadow, and in control blocks. One of `among`. "
            "Default: the first heuristic of `among`, else its first."
        ),
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
    def _consistent(self) -> SelectSpec:
        if len(set(self.among)) != len(self.among):
            raise ValueError("among names a candidate twice")
        for rule in SELECT_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    @property
    def model_name(self) -> str | None:
        """Name of the weights that choose; None for a selector that takes none."""
        return None if self.by in (SelectorName.PREVIEW, SelectorName.UCB) else self.model or str(self.by)

    @property
    def rule_candidate(self) -> str:
        """Candidate that decides where the selector does not."""
        heuristics = (name for name in self.among if name in set(HEURISTICS))
        return self.rule or next(heuristics, self.among[0])


SELECT_RULES = (
    CelRule(
        "(has(self.mode) && self.mode == 'Canary') == has(self.canary)",
        "canary belongs to mode Canary: set both or neither",
        lambda s: (s.mode == "Canary") == (s.canary is not None),
    ),
    CelRule(
        "!has(self.rule) || self.rule in self.among",
        "rule must be one of among",
        lambda s: s.rule is None or s.rule in s.among,
    ),
    CelRule(
        "!has(self.model) || !(self.by in ['preview', 'ucb'])",
        "model belongs to a learned selector: remove it, or choose by metanet or dqn",
        lambda s: s.model is None or s.by not in (SelectorName.PREVIEW, SelectorName.UCB),
    ),
)


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
        max_length=CANDIDATES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["candidate"]},
        description="Predicted cost of every candidate, as far as the selector predicts.",
    )
    measured_interval: int | None = Field(default=None, ge=0, description="The last interval whose pods have all ended.")
    measured_candidate: str = Field(default="", max_length=63, description="Who decided it.")
    measured_cost: float | None = Field(default=None, description="What it cost, in the unit of `predictedCost`.")
    last_switch: Switch | None = Field(default=None, description="The last change of the active policy.")
    switches: int = Field(default=0, ge=0, description="Switches since the policy selects.")
    learned: int = Field(default=0, ge=0, description="Decisions whose measured cost the selector has learned from.")
    group: str = Field(default="", max_length=63, description="In mode Canary of `select`: treated or control.")
    would: str = Field(
        default="",
        max_length=63,
        description="Candidate that the other of selector and rule would have taken in the last interval; empty: it was not asked.",
    )
    comparison: ComparisonStatus | None = Field(default=None, description="What the last canary of `select` has shown so far.")
    plan: str = Field(
        default="", max_length=253, description="PlacementPlan in force, in this namespace; empty while a placement policy decides."
    )
