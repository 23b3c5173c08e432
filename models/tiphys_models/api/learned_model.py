"""LearnedModel, `tiphys.io/v1alpha1`: weights with their card, what they are expected to be, and how far they may go."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, model_validator

from tiphys_models.api.base import GROUP, VERSION, Api, CelRule, Condition, Integer, parse
from tiphys_models.api.selection import PlannerName, SelectorName
from tiphys_models.artifacts import store
from tiphys_models.artifacts.card import System
from tiphys_models.artifacts.loaders import LOADERS, loader_of
from tiphys_models.placement.registry import PolicyName
from tiphys_models.streams.rules import STATIC

KIND = "LearnedModel"
PLURAL = "learnedmodels"
MODELS_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
NAME_MAX = 63
"""Longest name, the same as that of SchedulingPolicy's spec.model."""
CARD_MAX_BYTES = 65_536

ScalingAgentName = Literal["combined", "dqn-vertical", "dqn-horizontal", "q-table"]
SCALING_AGENTS: tuple[str, ...] = get_args(ScalingAgentName)
"""Learned ones of `scaling/registry.py`; the operator serves them."""
_SCALING_RULES = ("naive", "hpa", "rps-hpa", "rule-horizontal", "rule", "rule+")
RULES = tuple(
    name
    for name in (*map(str, PolicyName), *map(str, PlannerName), *map(str, SelectorName), *STATIC, *_SCALING_RULES)
    if name not in LOADERS
)
"""Deciders of the four systems that take no weights."""
ModelPolicy = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=63)]
Stage = Literal["candidate", "shadow", "canary", "active", "retired"]
SERVES = store.SERVES
"""Which modes of a policy a stage serves. What it does not serve, the next source of that name does."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)]
Decimal = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,12}([.][0-9]{1,9})?$", max_length=32)]
_Key = Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$", min_length=1, max_length=253)]
_ObjectName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", min_length=1, max_length=253)]
_FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?[.]safetensors$", max_length=75)]


class ConfigMapSource(Api):
    """Keys of a ConfigMap in the same namespace."""

    name: _ObjectName = Field(description="Name of the ConfigMap.")
    key: _Key = Field(default="weights.safetensors", description="Key of the weights in binaryData. Default weights.safetensors.")
    card_key: _Key = Field(default="card.json", description="Key of the card in data or binaryData. Default card.json.")


WEIGHTS_RULES = (
    CelRule(
        "has(self.configMap) != has(self.file)",
        "weights come from configMap or from file: set exactly one",
        lambda w: (w.config_map is None) != (w.file is None),
    ),
)


class WeightsSource(Api):
    """Where the bytes are."""

    config_map: ConfigMapSource | None = Field(default=None, description="A ConfigMap of the same namespace, up to 1 MiB with the card.")
    file: _FileName | None = Field(
        default=None, description="File name in the chart's models volume, for what is larger; its card is the JSON file of that name."
    )

    @model_validator(mode="after")
    def _consistent(self) -> WeightsSource:
        for rule in WEIGHTS_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class Evaluation(Api):
    """What speaks for it, in one line; the card holds the rest."""

    metric: str = Field(min_length=1, max_length=63, description="What was measured, such as validation_pct_of_hashing.")
    value: Decimal = Field(description="The result, as a decimal number in quotes.")
    source: str = Field(default="", max_length=253, description="The command or run that measured it.")


class LearnedModelSpec(Api):
    """Spec of a LearnedModel: which weights are published, for which policy, and how far they may go."""

    policy: ModelPolicy = Field(
        description=(
            "What decides with these weights: a learned placement policy, planner, selector, scaling agent or stream policy, as "
            "`tiphys policies` lists them; the card must say the same."
        )
    )
    stage: Stage = Field(
        default="candidate",
        description=(
            "Which modes it serves. candidate: none, it is only checked. shadow: policies in Shadow. canary: Shadow and Canary. "
            "active: all. retired: none. Modes it does not serve get the mounted or shipped model of that name. A ScalingPolicy in mode "
            "Recommend counts as Shadow. Default candidate."
        ),
    )
    weights: WeightsSource = Field(description="Where the weights are, as safetensors.")
    card: str | None = Field(
        default=None, min_length=2, max_length=CARD_MAX_BYTES, description="The card as JSON text; default: the one beside the weights."
    )
    sha256: Digest = Field(description="Digest of the weights. Other bytes are refused.")
    feature_schema: str = Field(
        min_length=1, max_length=63, description="Version of the encoder they were trained for, such as faasrank-42/1."
    )
    evaluation: Evaluation | None = Field(default=None, description="What speaks for it.")

    @model_validator(mode="after")
    def _consistent(self) -> LearnedModelSpec:
        for rule in CEL_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self

    @property
    def system(self) -> System | None:
        """Where it decides; None for a policy that no package here knows."""
        loader = loader_of(self.policy)
        return loader.system if loader is not None else None

    @property
    def artifact(self) -> tuple[object, ...]:
        """What decides which bytes are loaded and whether they are taken: equal for specs that differ in stage or evaluation only."""
        return self.policy, self.weights, self.card, self.sha256, self.feature_schema


CEL_RULES = (
    CelRule(
        f"!(self.policy in {list(RULES)})",
        "policy must be a learned one: rules take no weights",
        lambda s: s.policy not in RULES,
    ),
)


class LearnedModelStatus(Api):
    """What the operator found."""

    observed_generation: Integer = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    stage: str = Field(default="", max_length=63, description="Stage that this status speaks of.")
    served_digest: str = Field(default="", max_length=64, description="sha256 of this model's weights where they serve; empty: none.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Accepted, Loaded.",
    )


def parse_model(obj: dict[str, Any]) -> LearnedModelSpec:
    """The spec of a LearnedModel object; InvalidInput says which field is wrong."""
    return parse(LearnedModelSpec, obj, "is missing")
