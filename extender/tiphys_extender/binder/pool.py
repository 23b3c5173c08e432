"""The nodes that calls are placed on, and whether somebody else places pods there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tiphys_extender.binder.leases import Leases
from tiphys_extender.binder.sizes import Sizes
from tiphys_extender.decide import World
from tiphys_extender.decisions import DecisionLog
from tiphys_extender.watches import NodeSink, PodSink
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.facts import FUNCTION_LABEL, node_facts
from tiphys_models.domain.selector import LabelSelector
from tiphys_models.features.readings import CORES, CPU_REQUESTED_MILLI, MEMORY_CAPACITY, MEMORY_REQUESTED

_log = logging.getLogger(__name__)


class Pool:
    """Labels of the pool's nodes, and the pods on them that came through the other door."""

    def __init__(self, selector: LabelSelector) -> None:
        self.selector = selector
        self.labels: dict[str, Mapping[str, str]] = {}
        self.schedulable: set[str] = set()
        self.outside: dict[str, str] = {}
        """uid of every known node that is not in the pool, by name."""
        self.foreign: dict[str, str] = {}
        """uid -> node of pods that our scheduler placed, wherever: a node may join the pool later."""
        self.sizes = Sizes()
        self._warned = False

    def within(self, names: Sequence[str]) -> list[str]:
        """Distinct candidates that are in the pool, or that nobody has shown yet."""
        outside = self.outside
        return [name for name in dict.fromkeys(names) if name not in outside]

    def matching(self, selector: LabelSelector) -> list[str]:
        """Schedulable nodes of the pool with these labels."""
        return [name for name, labels in self.labels.items() if name in self.schedulable and selector.matches(labels)]

    def touched_by_both(self) -> int:
        """Nodes of the pool with pods that our scheduler placed; says so once when there are."""
        nodes = {node for node in self.foreign.values() if node in self.labels}
        if nodes and not self._warned:
            fields = {"nodes": len(nodes), "one": min(nodes), "hint": "taint the pool, so that pods stay away: docs/placing-calls.md"}
            _log.warning("pods and calls are placed on the same nodes", extra={"fields": fields})
        self._warned = bool(nodes)
        return len(nodes)


def with_room(world: World, names: list[str], milli: int, memory: int) -> list[str]:
    """Those whose allocatable less all requests, of pods and of open calls, leaves this much; all of them if none has."""
    numbers = world.state.nodes.numbers[world.state.nodes.rows(names)]
    fits = (numbers[:, CORES] * 1000 - numbers[:, CPU_REQUESTED_MILLI] >= milli) & (
        numbers[:, MEMORY_CAPACITY] - numbers[:, MEMORY_REQUESTED] >= memory
    )
    return names if not fits.any() or fits.all() else [names[i] for i in fits.nonzero()[0].tolist()]


class PoolNodeSink(NodeSink):
    """Only the pool's nodes are known to policies: to them there is no other cluster."""

    def __init__(self, world: World, pool: Pool) -> None:
        super().__init__(world)
        self._pool = pool

    def put(self, obj: dict[str, Any]) -> None:
        """In the pool as long as its labels say so."""
        metadata, pool = obj["metadata"], self._pool
        name, labels = metadata["name"], metadata.get("labels") or {}
        if not pool.selector.matches(labels):
            self._leave(obj)
            pool.outside[name] = metadata["uid"]
            return
        pool.outside.pop(name, None)
        super().put(obj)
        pool.labels[name] = labels
        facts = node_facts(obj)
        pool.sizes.put(facts)
        (pool.schedulable.add if facts.schedulable else pool.schedulable.discard)(name)

    def drop(self, obj: dict[str, Any]) -> None:
        """A node was deleted."""
        self._pool.outside.pop(obj["metadata"]["name"], None)
        self._leave(obj)

    def listed(self, uids: set[str]) -> None:
        """Whatever is not in the list is gone."""
        super().listed(uids)
        pool = self._pool
        pool.outside = {name: uid for name, uid in pool.outside.items() if uid in uids}
        pool.labels = {name: labels for name, labels in pool.labels.items() if name in self._known}
        pool.schedulable &= self._known.keys()
        pool.sizes.keep(pool.labels.keys())

    def _leave(self, obj: dict[str, Any]) -> None:
        name, pool = obj["metadata"]["name"], self._pool
        if pool.labels.pop(name, None) is not None:
            pool.schedulable.discard(name)
            pool.sizes.drop(name)
            super().drop(obj)


class CallPodSink(PodSink):
    """Pods as calls see them. One with a function label is an instance that calls run in: the calls count, not the pod. Any other
    pod takes what it requests, and is no call in flight."""

    def __init__(self, world: World, decisions: DecisionLog, clock: Clock, pool: Pool, leases: Leases) -> None:
        super().__init__(world, decisions, clock)
        self._pool, self._leases = pool, leases

    def put(self, obj: dict[str, Any]) -> None:
        """Unbound, bound or finished."""
        self._pool.foreign.pop(obj["metadata"]["uid"], None)
        facts, state = self._facts(obj), self._world.state
        if facts.node and not facts.finished and facts.scheduler_name == self._world.scheduler_name:
            self._pool.foreign[facts.uid] = facts.node
        if (obj["metadata"].get("labels") or {}).get(FUNCTION_LABEL):
            state.finished(facts.uid)  # it may have counted before it was labelled
            state.put_pod(replace(facts, node=""), self._clock.now_s())  # how long its start took is learnt all the same
        else:
            state.put_pod(replace(facts, function=""), self._clock.now_s())

    def drop(self, obj: dict[str, Any]) -> None:
        """Deleted, or finished."""
        self._pool.foreign.pop(obj["metadata"]["uid"], None)
        super().drop(obj)

    def listed(self, uids: set[str]) -> None:
        """Bound pods that are not in the list are gone; calls are in no list."""
        self._pool.foreign = {uid: node for uid, node in self._pool.foreign.items() if uid in uids}
        super().listed(uids | self._leases.uids)

    def __len__(self) -> int:
        return self._world.state.pods - len(self._leases)
