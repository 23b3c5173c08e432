"""Nodes, pods, SchedulingPolicies and the kill switch as their watches show them, into the world that decisions read."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.pod_cpu import PodCpu
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.api.routing import Route, Router, route_of
from tiphys_models.base.clock import Clock
from tiphys_models.base.facts import NodeFacts, PodFacts, node_facts, pod_facts
from tiphys_models.kube.objects import A_SLICE, ObjectLimits, Objects, SetAside
from tiphys_models.placement.placed import UNSEEN

_log = logging.getLogger(__name__)

MOST_NODES = ObjectLimits(objects=50_000, total_bytes=0)
"""Ten times as many as Kubernetes is meant for; of a node a few facts are kept."""


def node_objects(world: World) -> Objects[NodeFacts]:
    """Nodes into the placement state. Heartbeats change nothing that a policy reads, and must not make kept scores stale."""

    def changed(former: NodeFacts | None, now: NodeFacts | None) -> None:
        if now is not None:
            world.state.put_node(now)
        elif former is not None:
            world.state.drop_node(former.name)

    return Objects(node_facts, changed, limits=MOST_NODES)


class PodSink:
    """Pods into the placement state, and where they ended into the decision log. What is kept of a pod is the state's, and of its
    processor time `cpu`'s, where somebody reads it."""

    def __init__(self, world: World, decisions: DecisionLog, clock: Clock, cpu: PodCpu | None = None) -> None:
        self._world = world
        self._decisions = decisions
        self._clock = clock
        self._cpu = cpu

    def put(self, obj: dict[str, Any]) -> None:
        """Unbound, bound or finished."""
        facts, now_s = self._facts(obj), self._clock.now_s()
        end = UNSEEN if self._cpu is None else self._cpu.shown(obj, facts, now_s)
        self._world.state.put_pod(facts, now_s, end)
        if facts.node:
            self._decisions.bound(facts.uid, facts.node)

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted, or finished, which this watch shows as deleted."""
        metadata, now_s = obj["metadata"], self._clock.now_s()
        node = (obj.get("spec") or {}).get("nodeName")
        if node:  # a short run may be over before its bind was shown
            self._decisions.bound(metadata["uid"], node)
        ran = not (metadata.get("deletionTimestamp") or (obj.get("status") or {}).get("phase") == "Failed")
        end = UNSEEN if self._cpu is None else self._cpu.gone(obj, now_s, ran=ran)
        if ran:  # nobody wanted it gone: it has run to its end
            self._world.state.ran(metadata["uid"], now_s, end)
        else:
            self._world.state.finished(metadata["uid"])

    def listed(self, uids: set[str]) -> None:
        """Bound pods that are not in the list are gone."""
        for _ in self.sweep(uids):
            pass

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """The same slice by slice: after a long pause tens of thousands may have gone."""
        if self._cpu is not None:
            self._cpu.pods.keep(uids)
        for number, uid in enumerate(self._world.state.bound_except(uids), 1):
            self._world.state.finished(uid)
            if number % A_SLICE == 0:
                yield

    def _facts(self, obj: dict[str, Any]) -> PodFacts:
        """One that cannot be read counts as nothing from now on: what it was before may be true no longer."""
        try:
            return pod_facts(obj)
        except Exception:
            if self._cpu is not None:
                self._cpu.gone(obj, self._clock.now_s(), ran=False)
            self._world.state.finished(obj["metadata"]["uid"])
            raise

    def __len__(self) -> int:
        return self._world.state.pods


def policy_objects(world: World, metrics: Metrics) -> Objects[Route]:
    """SchedulingPolicies into the router, each for itself: thousands of them cost no more a change than one.

    One that cannot be obeyed is counted, and leaves the last valid spec of the object.
    """
    world.router = Router((), world.own_namespace)
    modes: Counter[str] = Counter()

    def count(route: Route, change: int) -> None:
        mode = route.spec.mode
        modes[mode] += change
        metrics.routes[mode].set(modes[mode])

    def changed(former: Route | None, now: Route | None) -> None:
        if former is not None:
            world.router.remove(former)
            count(former, -1)
        if now is not None:
            world.router.put(now)
            count(now, +1)

    def refused(aside: SetAside) -> None:
        _log.warning("policy ignored", extra={"fields": {"policy": aside.key, "why": aside.reason}})

    objects = Objects(route_of, changed, refused=refused)
    metrics.invalid_policies.set_function(lambda: float(len(objects.aside)))
    return objects


def switch_objects(world: World, metrics: Metrics, name: str) -> Objects[tuple[str, bool]]:
    """The kill switch: a ConfigMap whose `enabled: "false"` makes every answer neutral. No ConfigMap of that name means on."""

    def read(obj: dict[str, Any]) -> tuple[str, bool]:
        said = (obj.get("data") or {}).get("enabled", "true")
        return obj["metadata"]["name"], str(said).strip().lower() != "false"

    def changed(former: tuple[str, bool] | None, now: tuple[str, bool] | None) -> None:
        which, enabled = now or (former[0] if former is not None else "", True)
        if which != name:
            return
        if enabled != world.enabled:
            _log.warning("Tiphys switched on" if enabled else "Tiphys switched off: every answer is neutral")
        world.enabled = enabled
        metrics.enabled.set(enabled)

    return Objects(read, changed)
