"""Watches of the API server that feed the world: nodes, pods, policies, models and the kill switch, each by list and watch in raw JSON."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from dataclasses import replace

from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.objects import PodSink, node_objects, policy_objects, switch_objects
from tiphys_extender.placement.plans import PlanObjects
from tiphys_extender.serve.loops import WATCH_LIMIT_S, Loops
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.client import ApiError, KubeClient
from tiphys_models.kube.guard import GuardedSink, Troubles, said_without_words
from tiphys_models.kube.kinds import LEARNED_MODELS, PLACEMENT_PLANS, SCHEDULING_POLICIES
from tiphys_models.kube.reflector import BadObject, CountingSink, Reflector, WatchLimits
from tiphys_models.placement.gate import MAY_WAIT

_log = logging.getLogger(__name__)

POLICIES_PATH = SCHEDULING_POLICIES.path()
PLANS_PATH = PLACEMENT_PLANS.path()
RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods without a node and finished ones are no load; the API server turns such a change into ADDED or DELETED for this watch."""
WAITING_PATH = "/api/v1/pods"
WAITING = {"labelSelector": f"{MAY_WAIT}=true", "fieldSelector": "spec.nodeName="}
"""Pods without a node whose authors let them wait."""

POD_REST_S = 0.05
"""Decisions see their own reservations at once, so binds may be heard of in batches: in a burst each would wake the process by itself."""


def watch_troubles(metrics: Metrics) -> Troubles:
    """What objects make the watches trip over, in this process's counters; no words of an error, which may quote a pod's environment."""
    return Troubles(
        lambda kind: metrics.watch_errors[kind, "bad-object"].inc(), lambda kind: metrics.odd_objects.labels(kind).inc(), said_without_words
    )


class Watches:
    """All watches against one API server."""

    def __init__(
        self,
        client: KubeClient,
        world: World,
        decisions: DecisionLog,
        metrics: Metrics,
        clock: Clock,
        switch_configmap: str,
        learned: LearnedModels | None = None,
        limits: WatchLimits | None = None,
        *,
        loops: Loops | None = None,
        nodes: CountingSink | None = None,
        pods: CountingSink | None = None,
        more: Mapping[str, tuple[str, CountingSink]] | None = None,
        selections: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`more`: other kinds and where they are, `selections` which of their objects; none is waited for in a cluster without it."""
        self._world = world
        self._loops = loops or Loops(metrics, clock)
        self._learned = learned
        self._gave_up: set[str] = set()
        self._heard_s: dict[str, float] = {}
        self._failed_s: dict[str, float] = {}
        self._metrics = metrics
        self._clock = clock
        self._sinks: dict[str, CountingSink] = {
            "nodes": nodes if nodes is not None else node_objects(world),
            "pods": pods if pods is not None else PodSink(world, decisions, clock),
            "policies": policy_objects(world, metrics),
            "plans": PlanObjects(world),
        }
        paths: dict[str, tuple[str, Mapping[str, str]]] = {
            "nodes": ("/api/v1/nodes", {}),
            "pods": ("/api/v1/pods", {"fieldSelector": RUNNING}),
            "policies": (POLICIES_PATH, {}),
            "plans": (PLANS_PATH, {}),
        }
        if world.own_namespace and switch_configmap:
            self._sinks["switch"] = switch_objects(world, metrics, switch_configmap)
            path = f"/api/v1/namespaces/{world.own_namespace}/configmaps"
            paths["switch"] = (path, {"fieldSelector": f"metadata.name={switch_configmap}"})
        if learned is not None:
            self._sinks["models"] = learned
            paths["models"] = (LEARNED_MODELS.path(learned.namespace), {})
        self._more = frozenset(more or ())
        for kind, (path, sink) in (more or {}).items():
            self._sinks[kind], paths[kind] = sink, (path, (selections or {}).get(kind, {}))
        limits = limits or WatchLimits()
        troubles = watch_troubles(metrics)
        self._reflectors = {
            kind: Reflector(
                client,
                path,
                GuardedSink(kind, self._sinks[kind], troubles),
                clock,
                params=params,
                limits=replace(limits, rest_s=POD_REST_S) if kind == "pods" else limits,
                on_error=lambda path, error, kind=kind: self._failed(kind, path, error),  # type: ignore[misc]
            )
            for kind, (path, params) in paths.items()
        }
        for kind in self._reflectors:
            optional = kind in (*self._more, "plans", "models")
            self._loops.expect(_loop(kind), WATCH_LIMIT_S, essential=not optional)

    async def run(self) -> None:
        """Run all watches until cancelled; an unexpected error in one starts that one again, and leaves the others alone."""
        async with asyncio.TaskGroup() as group:
            for kind, reflector in self._reflectors.items():
                group.create_task(self._loops.keep(_loop(kind), reflector.run))

    @property
    def missing(self) -> tuple[str, ...]:
        """Kinds that have not been listed yet."""
        return tuple(kind for kind, reflector in self._reflectors.items() if not self._ready(kind, reflector))

    def _ready(self, kind: str, reflector: Reflector) -> bool:
        if kind == "plans" or kind in self._more:
            # a cluster without the CRD or the right must still be served: without plans by the fallback, without streams
            return kind in self._gave_up or reflector.synced.is_set()
        if kind == "models" and self._learned is not None:
            # a cluster without the CRD or the right must still be served: by what is mounted or shipped
            return kind in self._gave_up or (reflector.synced.is_set() and self._learned.settled)
        return reflector.synced.is_set()

    def deaf(self, *kinds: str) -> list[str]:
        """Those of the kinds of which nothing was listed yet, or nothing was heard since their watch failed last."""
        return [
            kind
            for kind in kinds
            if not self._reflectors[kind].synced.is_set() or self._failed_s.get(kind, -math.inf) >= self._reflectors[kind].last_activity_s
        ]

    def publish(self) -> None:
        """Sync state and gauges; called every tick."""
        missing = self.missing
        self._world.synced = not missing
        behind_s = self._clock.now_s() - self._clock.monotonic_s()
        for kind, reflector in self._reflectors.items():
            self._metrics.cache_synced[kind].set(kind not in missing)
            self._metrics.cache_objects[kind].set(len(self._sinks[kind]))
            self._metrics.last_event[kind].set(reflector.last_activity_s + behind_s)
            if reflector.last_activity_s > self._heard_s.get(kind, -math.inf):
                self._heard_s[kind] = reflector.last_activity_s
                self._loops.beat(_loop(kind))

    def _failed(self, kind: str, path: str, error: Unavailable) -> None:
        reason = watch_reason(error)
        self._gave_up.add(kind)
        self._failed_s[kind] = self._clock.monotonic_s()
        self._loops.beat(_loop(kind))  # the API server's trouble, not the loop's: how old its news is has a metric of its own
        self._metrics.watch_errors[kind, reason].inc()
        hint = "grant get, list and watch on it to the extender's service account" if reason == "forbidden" else ""
        _log.warning("watch failed, trying again", extra={"fields": {"kind": kind, "path": path, "why": str(error), "hint": hint}})


def watch_reason(error: Unavailable) -> str:
    """The fixed word for a failed list or watch."""
    if isinstance(error, BadObject):
        return "bad-object"
    if not isinstance(error, ApiError):
        return "unreachable"
    match error.status:
        case 401 | 403:
            return "forbidden"
        case 410:
            return "gone"
        case 429:
            return "throttled"
        case status if status >= 500:
            return "server-error"
        case _:
            return "other"


def _loop(kind: str) -> str:
    return f"watch-{kind}"
