"""LearnedModel, `tiphys.io/v1alpha1`: weights with their card, what they are expected to be, and how far they may go."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, StringConstraints, WithJsonSchema, model_validator

from tiphys_models.api.base import Api, CelRule, Integer
from tiphys_models.api.scheduling_policy import GROUP, VERSION, Condition, Mode, parse
from tiphys_models.policies.registry import PolicyName, is_learned

KIND = "LearnedModel"
PLURAL = "learnedmodels"
MODELS_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
NAME_MAX = 63
"""As long as SchedulingPolicy's spec.model can be."""
CARD_MAX_BYTES = 65_536

ScalingAgentName = Literal["combined", "dqn-vertical", "dqn-horizontal", "q-table"]
SCALING_AGENTS: tuple[str, ...] = get_args(ScalingAgentName)
"""Learned ones of `scaling/registry.py`; the operator serves them."""
ModelPolicy = Annotated[PolicyName | ScalingAgentName, WithJsonSchema({"type": "string", "enum": [*map(str, PolicyName), *SCALING_AGENTS]})]
Stage = Literal["candidate", "shadow", "canary", "active", "retired"]
SERVES: dict[str, frozenset[Mode]] = {
    "candidate": frozenset(),
    "shadow": frozenset({"Shadow"}),
    "canary": frozenset({"Shadow", "Canary"}),
    "active": frozenset({"Shadow", "Canary", "Active"}),
    "retired": frozenset(),
}
"""Which modes of a SchedulingPolicy a stage serves. What it does not serve, the next source of that name does."""

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
    """What is published."""

    policy: ModelPolicy = Field(description="Learned placement policy or scaling agent these weights are for; the card must say the same.")
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
    def for_scaling(self) -> bool:
        """Whether the operator serves it, and not the extenders."""
        return self.policy in SCALING_AGENTS

    @property
    def artifact(self) -> tuple[object, ...]:
        """What decides which bytes are loaded and whether they are taken: equal for specs that differ in stage or evaluation only."""
        return self.policy, self.weights, self.card, self.sha256, self.feature_schema


_LEARNED = [*(str(name) for name in PolicyName if is_learned(name)), *SCALING_AGENTS]
CEL_RULES = (
    CelRule(
        f"self.policy in {_LEARNED}",
        "policy must be a learned one: rules take no weights",
        lambda s: s.policy in _LEARNED,
    ),
)


class LearnedModelStatus(Api):
    """What the operator found."""

    observed_generation: Integer = Field(default=0, ge=0, description="Generation of the spec this status speaks of.")
    stage: str = Field(default="", max_length=63, description="Stage that this status speaks of.")
    served_digest: str = Field(default="", max_length=64, description="sha256 of this model's weights in the extenders; empty: none.")
    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        description="Accepted, Loaded.",
    )


def parse_model(obj: dict[str, Any]) -> LearnedModelSpec:
    """The spec of a LearnedModel object; InvalidInput says which field is wrong."""
    return parse(LearnedModelSpec, obj, "is missing")
