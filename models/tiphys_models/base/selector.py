"""Label selectors, with the meaning kube-apiserver gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of a selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy this line (a missing key satisfies NotIn and DoesNotExist)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def of(cls, match_labels: Mapping[str, str], expressions: tuple[Requirement, ...] = ()) -> LabelSelector:
        """A selector made of the two halves of a Kubernetes LabelSelector."""
        exact = tuple(Requirement(k, "In", frozenset({v})) for k, v in sorted(match_labels.items()))
        return cls(exact + expressions)

    @property
    def specificity(self) -> int:
        """How many lines it has: the more specific of two matching policies wins."""
        return len(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether every requirement holds."""
        return all(r.matches(labels) for r in self.requirements)
