"""Processor time of functions' pods: which pods are asked for, and what their end tells the policies that learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

from tiphys_extender.placement.decide import World
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.api.routing import Route
from tiphys_models.base.facts import PodFacts
from tiphys_models.placement.placed import UNSEEN, CallEnd
from tiphys_models.placement.pod_cpu import POD_CPU_SERIES, OpenPods
from tiphys_models.placement.registry import PolicyName
from tiphys_models.placement.table import UNKNOWN

RECKON_WITH_CORES = frozenset({PolicyName.RULE_6, PolicyName.ESTIMATOR, PolicyName.ESTIMATOR_NETWORK})
"""Policies that make use of how many cores calls of a function take."""


class PodCpu:
    """Open pods with their last samples. Only the watch of pods and the readings touch it, no decision does."""

    def __init__(self, world: World, metrics: Metrics, series: str = POD_CPU_SERIES) -> None:
        self._world, self._metrics = world, metrics
        self.series = series
        self.pods = OpenPods()
        self._wanted: Set[str] = frozenset()

    def wanted(self) -> Set[str]:
        """Namespaces with open pods whose end could teach a policy that is asked there."""
        self._wanted = {route.namespace for route in self._world.router if _learns(route)} if len(self.pods) else frozenset()
        return self._wanted & self.pods.namespaces

    def shown(self, pod: Mapping[str, Any], facts: PodFacts, now_s: float) -> CallEnd:
        """A pod was added or changed: it runs, or this is what is known of its end."""
        if facts.in_flight:
            self.pods.seen(facts.namespace, facts.name, facts.uid, facts.started_s, restarted=_restarted(pod))
            return UNSEEN
        return self.gone(pod, now_s, ran=facts.finished and not facts.failed)

    def gone(self, pod: Mapping[str, Any], now_s: float, *, ran: bool) -> CallEnd:
        """A pod runs no longer; what is known of its end if it `ran` to it."""
        metadata = pod["metadata"]
        namespace = metadata.get("namespace") or "default"
        known = self.pods.gone(namespace, metadata.get("name") or "", metadata["uid"])
        if known is None or not ran:
            return UNSEEN
        end = known.ended(now_s, self._cores((pod.get("spec") or {}).get("nodeName") or ""))
        if namespace in self._wanted:  # elsewhere nobody was asked, and nobody misses it
            (self._metrics.pod_cpu_learned if end.unknown is None else self._metrics.pod_cpu_unknown[end.unknown]).inc()
        return UNSEEN if end.unknown is not None else CallEnd(core_seconds=end.core_seconds)

    def _cores(self, node: str) -> float:
        """What a node has; infinite where nobody has said."""
        nodes = self._world.state.nodes
        row = nodes.row_of[node]
        return math.inf if row == UNKNOWN else float(nodes.cores[row]) or math.inf


def _learns(route: Route) -> bool:
    spec = route.spec
    deciding = [route.deciding] if spec.select is None else spec.select.among
    return spec.mode != "Off" and not RECKON_WITH_CORES.isdisjoint(deciding)


def _restarted(pod: Mapping[str, Any]) -> bool:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(isinstance(container, dict) and container.get("restartCount") for container in containers)
