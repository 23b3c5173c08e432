"""Label selectors of pods, as every kind of the group writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from tiphys_models.api.base import Api, CelRule, without_nulls
from tiphys_models.base.selector import LabelSelector, Requirement

# As apimachinery's validation.IsQualifiedName and IsValidLabelValue; [.] instead of an escape, so that CEL needs none either.
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"


_LABEL_KEY = f"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"


_LABEL_KEY_MAX = 317  # 253 of a prefix, a slash, 63 of a name


LabelKey = Annotated[str, StringConstraints(pattern=_LABEL_KEY, min_length=1, max_length=_LABEL_KEY_MAX)]


LabelValue = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]


LABEL_KEYS_RULE = CelRule(
    f"self.all(key, size(key) <= {_LABEL_KEY_MAX} && key.matches('{_LABEL_KEY}'))",
    "keys must be label keys: an optional DNS prefix and a slash, then at most 63 letters, digits, dashes, underscores or dots",
    lambda labels: True,  # LabelKey says it already; a structural schema has no place for it
)


REQUIREMENT_RULES = (
    CelRule(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
        "values belong to the operators In and NotIn: give at least one there and none otherwise",
        lambda r: (r.operator in ("In", "NotIn")) == bool(r.values),
    ),
)


class SelectorRequirement(Api):
    """One line of the pod selector."""

    key: LabelKey = Field(description="Label key.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(description="How the label's value is compared with `values`.")
    values: list[LabelValue] = Field(default_factory=list, max_length=64, description="Values for In and NotIn; empty for the others.")

    @model_validator(mode="after")
    def _consistent(self) -> SelectorRequirement:
        for rule in REQUIREMENT_RULES:
            if not rule.holds(self):
                raise ValueError(rule.message)
        return self


class PodSelector(Api):
    """Which pods of the policy's own namespace; empty selects all of them."""

    match_labels: Annotated[dict[LabelKey, LabelValue], BeforeValidator(without_nulls)] = Field(
        default_factory=dict, max_length=64, description="Labels a pod must have, exactly."
    )
    match_expressions: list[SelectorRequirement] = Field(
        default_factory=list, max_length=64, description="Further requirements; all must hold."
    )

    def compiled(self) -> LabelSelector:
        """The same selector as the library's `LabelSelector`, which matches pods."""
        return LabelSelector.of(
            self.match_labels,
            tuple(Requirement(e.key, e.operator, frozenset(e.values)) for e in self.match_expressions),
        )
