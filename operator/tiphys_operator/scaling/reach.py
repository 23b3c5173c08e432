"""Which namespaces scaling may touch: what the release allows, never the cluster's own namespaces nor the release's."""

from __future__ import annotations

from dataclasses import dataclass

from tiphys_models.api.routing import PROTECTED_NAMESPACES
from tiphys_operator.settings import Settings


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a policy may be looked at."""

    own_namespace: str = ""
    allowed: frozenset[str] = frozenset()
    """Empty: all but the others."""
    excluded: frozenset[str] = frozenset()

    def refusal(self, namespace: str) -> str | None:
        """Why policies of a namespace are left alone; None if they are not."""
        if namespace in PROTECTED_NAMESPACES:
            return f"nothing is scaled in {namespace}: the cluster itself runs there"
        if namespace == self.own_namespace:
            return f"nothing is scaled in {namespace}: this release runs there"
        if namespace in self.excluded:
            return f"{namespace} is excluded by operator.scaling.excludedNamespaces of the release"
        if self.allowed and namespace not in self.allowed:
            return f"{namespace} is not among operator.scaling.namespaces of the release"
        return None


def reach_of(settings: Settings) -> Reach:
    """The reach that the release's settings allow."""
    return Reach(settings.namespace, settings.scaling_namespaces, settings.scaling_excluded_namespaces)
