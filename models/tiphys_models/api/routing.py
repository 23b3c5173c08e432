"""Which policy decides a pod: the same answer in operator, extender and command.

A policy acts in its own namespace only. Of several that match, the one with more selector requirements wins, then the older, then
the first by name. Pods of kube-system and of our own release are never ours.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.scheduling_policy import SchedulingPolicySpec, parse_spec
from tiphys_models.base.selector import LabelSelector

PROTECTED_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})
DEFAULT_SCHEDULER_NAME = "tiphys"


@dataclass(frozen=True, slots=True)
class Route:
    """A valid policy object, ready to be matched."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    """RFC 3339: sorts as time."""
    selector: LabelSelector
    spec: SchedulingPolicySpec
    chosen: str = ""
    """Candidate that a selector chose, as status names it for exactly this generation; empty until the operator has chosen."""

    @property
    def key(self) -> str:
        """Key of the policy object: namespace/name."""
        return f"{self.namespace}/{self.name}"

    @property
    def deciding(self) -> str:
        """Name of the policy that should decide: `spec.policy`, or what the operator chose; empty before it has."""
        return str(self.spec.judge or self.spec.policy) if self.spec.select is None else self.chosen

    @property
    def _precedence(self) -> tuple[int, str, str]:
        return -self.selector.specificity, self.created, self.name


def route_of(obj: Mapping[str, Any]) -> Route:
    """Route of a policy object as the API server sends it; raises InvalidInput for a spec it should not have admitted."""
    metadata = obj["metadata"]
    spec = parse_spec(dict(obj))
    found = obj.get("status")
    status = found if isinstance(found, dict) else {}
    current = spec.select is not None and status.get("observedGeneration") == metadata.get("generation", 0)
    active = str(status.get("activePolicy") or "")
    return Route(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        created=metadata.get("creationTimestamp") or "",
        selector=spec.selector.compiled(),
        spec=spec,
        chosen=active if current and spec.select is not None and active in spec.select.among else "",
    )


class Router:
    """All routes, by namespace and in order of precedence."""

    def __init__(self, routes: Iterable[Route], own_namespace: str = "") -> None:
        self._own_namespace = own_namespace
        self._by_namespace: dict[str, list[Route]] = {}
        for route in routes:
            self.put(route)

    def put(self, route: Route) -> None:
        """Add this route beside the others. If the policy has one already, `remove` that first."""
        insort(self._by_namespace.setdefault(route.namespace, []), route, key=lambda r: r._precedence)

    def remove(self, route: Route) -> None:
        """No more: exactly what was put. Costs no more than its own namespace."""
        routes = self._by_namespace.get(route.namespace, [])
        at = bisect_left(routes, route._precedence, key=lambda r: r._precedence)
        while at < len(routes) and routes[at] is not route:
            at += 1
        if at < len(routes):
            del routes[at]
        if not routes:
            self._by_namespace.pop(route.namespace, None)

    def route(self, namespace: str, labels: Mapping[str, str]) -> Route | None:
        """The policy that decides a pod with these labels; None if no policy may."""
        if namespace in PROTECTED_NAMESPACES or (self._own_namespace and namespace == self._own_namespace):
            return None
        for route in self._by_namespace.get(namespace, ()):
            if route.selector.matches(labels):
                return route
        return None

    def conflicts_of(self, route: Route) -> tuple[Route, ...]:
        """Policies of the namespace that win over this one and can match a pod that it matches too, as far as labels tell."""
        stronger = []
        for other in self._by_namespace.get(route.namespace, ()):
            if other.key == route.key:
                break
            if not _disjoint(other.selector, route.selector):
                stronger.append(other)
        return tuple(stronger)

    def __iter__(self) -> Any:
        return (route for routes in self._by_namespace.values() for route in routes)


def _disjoint(a: LabelSelector, b: LabelSelector) -> bool:
    """Whether no labels can satisfy both (only what single keys show: enough for a warning)."""
    for first in a.requirements:
        for second in b.requirements:
            if first.key != second.key:
                continue
            pair = {first.operator, second.operator}
            if pair == {"In"} and not first.values & second.values:
                return True
            if "DoesNotExist" in pair and pair & {"In", "Exists"}:
                return True
            if pair == {"In", "NotIn"}:
                inside, outside = (first, second) if first.operator == "In" else (second, first)
                if inside.values <= outside.values:
                    return True
    return False
