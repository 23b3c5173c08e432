"""From the API server into the world: nodes, pods, policies, models and the kill switch, each by list and watch in raw JSON."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tiphys_extender.decide import World
from tiphys_extender.decisions import DecisionLog
from tiphys_extender.guarded import CountingSink, Guarded
from tiphys_extender.learned_models import LearnedModels
from tiphys_extender.loops import WATCH_LIMIT_S, Loops
from tiphys_extender.metrics import Metrics
from tiphys_extender.plans import PlanSink
from tiphys_models.api.learned_model import PLURAL as MODELS
from tiphys_models.api.placement_plan import PLURAL as PLANS
from tiphys_models.api.routing import Route, Router, route_of
from tiphys_models.api.scheduling_policy import GROUP, PLURAL, VERSION
from tiphys_models.clients.kube import ApiError, KubeClient
from tiphys_models.clients.reflector import BadObject, Reflector, WatchLimits
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.errors import Unavailable
from tiphys_models.domain.facts import NodeFacts, PodFacts, node_facts, pod_facts

_log = logging.getLogger(__name__)

POLICIES_PATH = f"/apis/{GROUP}/{VERSION}/{PLURAL}"
PLANS_PATH = f"/apis/{GROUP}/{VERSION}/{PLANS}"
RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Pods without a node and finished ones are no load; the API server turns such a change into ADDED or DELETED for this watch."""

POD_REST_S = 0.05
"""Decisions see their own reservations at once, so binds may be heard of in batches: in a burst each would wake the process by itself."""


_LONGEST_REASON = 500


class NodeSink:
    """Nodes into the placement state."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[str, tuple[str, NodeFacts]] = {}  # name -> uid, facts

    def put(self, obj: dict[str, Any]) -> None:
        """Heartbeats change nothing a policy reads, and must not make kept scores stale."""
        facts = node_facts(obj)
        uid = obj["metadata"]["uid"]
        if self._known.get(facts.name) != (uid, facts):
            self._known[facts.name] = (uid, facts)
            self._world.state.put_node(facts)

    def drop(self, obj: dict[str, Any]) -> None:
        """A node was deleted."""
        name = obj["metadata"]["name"]
        self._known.pop(name, None)
        self._world.state.drop_node(name)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for name in [name for name, (uid, _) in self._known.items() if uid not in uids]:
            self._known.pop(name)
        self._world.state.forget_nodes_except(set(self._known))

    def __len__(self) -> int:
        return len(self._known)


class PodSink:
    """Pods into the placement state, and where they ended into the decision log."""

    def __init__(self, world: World, decisions: DecisionLog, clock: Clock) -> None:
        self._world = world
        self._decisions = decisions
        self._clock = clock

    def put(self, obj: dict[str, Any]) -> None:
        """Unbound, bound or finished."""
        facts = self._facts(obj)
        self._world.state.put_pod(facts, self._clock.now_s())
        if facts.node:
            self._decisions.bound(facts.uid, facts.node)

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted, or finished, which this watch shows as deleted."""
        metadata = obj["metadata"]
        node = (obj.get("spec") or {}).get("nodeName")
        if node:  # a short run may be over before its bind was shown
            self._decisions.bound(metadata["uid"], node)
        if metadata.get("deletionTimestamp"):
            self._world.state.finished(metadata["uid"])
        else:  # nobody wanted it gone: it has run to its end
            self._world.state.ran(metadata["uid"], self._clock.now_s())

    def listed(self, uids: set[str]) -> None:
        """Bound pods that are not in the list are gone."""
        self._world.state.forget_pods_except(uids)

    def _facts(self, obj: dict[str, Any]) -> PodFacts:
        """One that cannot be read counts as nothing from now on: what it was before may be true no longer."""
        try:
            return pod_facts(obj)
        except Exception:
            self._world.state.finished(obj["metadata"]["uid"])
            raise

    def __len__(self) -> int:
        return self._world.state.pods


class PolicySink:
    """SchedulingPolicies into the router, each for itself: thousands of them cost no more a change than one.

    An object that cannot be obeyed is counted and changes nothing.
    """

    def __init__(self, world: World, metrics: Metrics) -> None:
        self._world = world
        self._metrics = metrics
        self._routes: dict[str, Route] = {}
        self._uids: dict[str, str] = {}
        self._invalid: dict[str, str] = {}
        self._modes: Counter[str] = Counter()
        world.router = Router((), world.own_namespace)

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed: a valid spec counts from now on, an invalid one leaves the last valid spec of the object."""
        key = _key(obj)
        if self._uids.get(key) != (uid := obj["metadata"].get("uid", "")):
            self._unroute(key)  # deleted and made again: the old spec is nobody's
        self._uids[key] = uid
        try:
            route = route_of(obj)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the last valid spec of the object stays
            why = (str(error) or type(error).__name__)[:_LONGEST_REASON]
            if self._invalid.get(key) != why:
                _log.warning("policy ignored", extra={"fields": {"policy": key, "why": why}})
            self._invalid[key] = why
        else:
            self._invalid.pop(key, None)
            if self._routes.get(key) != route:
                self._unroute(key)
                self._route(key, route)
        self._metrics.invalid_policies.set(len(self._invalid))

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted: no spec of it counts any more."""
        self._remove(_key(obj))

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        for key in [key for key, uid in self._uids.items() if uid not in uids]:
            self._remove(key)

    def __len__(self) -> int:
        return len(self._uids)

    def _remove(self, key: str) -> None:
        self._unroute(key)
        self._uids.pop(key, None)
        self._invalid.pop(key, None)
        self._metrics.invalid_policies.set(len(self._invalid))

    def _route(self, key: str, route: Route) -> None:
        self._routes[key] = route
        self._world.router.put(route)
        self._count(route.spec.mode, +1)

    def _unroute(self, key: str) -> None:
        if (route := self._routes.pop(key, None)) is not None:
            self._world.router.remove(route)
            self._count(route.spec.mode, -1)

    def _count(self, mode: str, change: int) -> None:
        self._modes[mode] += change
        self._metrics.routes[mode].set(self._modes[mode])


class SwitchSink:
    """The kill switch: a ConfigMap whose `enabled: "false"` makes every answer neutral. No ConfigMap means on."""

    def __init__(self, world: World, metrics: Metrics, name: str) -> None:
        self._world = world
        self._metrics = metrics
        self._name = name
        self._present = 0

    def put(self, obj: dict[str, Any]) -> None:
        """Added or changed."""
        if obj["metadata"]["name"] == self._name:
            self._present = 1
            self._set(str((obj.get("data") or {}).get("enabled", "true")).strip().lower() != "false")

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted: on."""
        if obj["metadata"]["name"] == self._name:
            self._present = 0
            self._set(True)

    def listed(self, uids: set[str]) -> None:
        """Nothing listed: on."""
        if not uids:
            self._present = 0
            self._set(True)

    def __len__(self) -> int:
        return self._present

    def _set(self, enabled: bool) -> None:
        if enabled != self._world.enabled:
            _log.warning("Tiphys switched on" if enabled else "Tiphys switched off: every answer is neutral")
        self._world.enabled = enabled
        self._metrics.enabled.set(enabled)


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
    ) -> None:
        """`more`: other kinds and where they are; none of them is waited for in a cluster that does not have it."""
        self._world = world
        self._loops = loops or Loops(metrics, clock)
        self._learned = learned
        self._gave_up: set[str] = set()
        self._heard_s: dict[str, float] = {}
        self._metrics = metrics
        self._clock = clock
        self._sinks: dict[str, CountingSink] = {
            "nodes": nodes if nodes is not None else NodeSink(world),
            "pods": pods if pods is not None else PodSink(world, decisions, clock),
            "policies": PolicySink(world, metrics),
            "plans": PlanSink(world),
        }
        paths: dict[str, tuple[str, Mapping[str, str]]] = {
            "nodes": ("/api/v1/nodes", {}),
            "pods": ("/api/v1/pods", {"fieldSelector": RUNNING}),
            "policies": (POLICIES_PATH, {}),
            "plans": (PLANS_PATH, {}),
        }
        if world.own_namespace and switch_configmap:
            self._sinks["switch"] = SwitchSink(world, metrics, switch_configmap)
            path = f"/api/v1/namespaces/{world.own_namespace}/configmaps"
            paths["switch"] = (path, {"fieldSelector": f"metadata.name={switch_configmap}"})
        if learned is not None:
            self._sinks["models"] = learned
            paths["models"] = (f"/apis/{GROUP}/{VERSION}/namespaces/{learned.namespace}/{MODELS}", {})
        self._more = frozenset(more or ())
        for kind, (path, sink) in (more or {}).items():
            self._sinks[kind], paths[kind] = sink, (path, {})
        limits = limits or WatchLimits()
        self._reflectors = {
            kind: Reflector(
                client,
                path,
                Guarded(kind, self._sinks[kind], metrics),
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
        """Until cancelled; an unexpected error in one starts that one again, and leaves the others alone."""
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


def _key(obj: Mapping[str, Any]) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
