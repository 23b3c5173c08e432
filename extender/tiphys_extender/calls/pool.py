"""The nodes that calls are placed on, and whether somebody else places pods there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tiphys_extender.calls.leases import Leases
from tiphys_extender.calls.sizes import NodeSizes
from tiphys_extender.placement.decide import World
from tiphys_extender.placement.decisions import DecisionLog
from tiphys_extender.placement.objects import MOST_NODES, PodSink
from tiphys_models.base.clock import Clock
from tiphys_models.base.facts import FUNCTION_LABEL, NodeFacts, node_facts
from tiphys_models.base.selector import LabelSelector
from tiphys_models.kube.objects import Objects
from tiphys_models.placement.candidates import CORES, CPU_REQUESTED_MILLI, MEMORY_CAPACITY, MEMORY_REQUESTED

_log = logging.getLogger(__name__)


class Pool:
    """Labels of the pool's nodes, and the pods on them that our scheduler placed beside the calls."""

    def __init__(self, selector: LabelSelector) -> None:
        self.selector = selector
        self.labels: dict[str, Mapping[str, str]] = {}
        self.schedulable: set[str] = set()
        self.outside: set[str] = set()
        """Every known node that is not in the pool."""
        self.foreign: dict[str, str] = {}
        """uid -> node of pods that our scheduler placed, wherever: a node may join the pool later."""
        self.sizes = NodeSizes()
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
    """Nodes whose allocatable less all requests, of pods and of open calls, leaves this much; all of them if none has."""
    numbers = world.state.nodes.numbers[world.state.nodes.rows(names)]
    fits = (numbers[:, CORES] * 1000 - numbers[:, CPU_REQUESTED_MILLI] >= milli) & (
        numbers[:, MEMORY_CAPACITY] - numbers[:, MEMORY_REQUESTED] >= memory
    )
    return names if not fits.any() or fits.all() else [names[i] for i in fits.nonzero()[0].tolist()]


class _PoolNode(NamedTuple):
    name: str
    labels: Mapping[str, str]
    facts: NodeFacts | None
    """None outside the pool, where nobody asks for them."""


def pool_nodes(world: World, pool: Pool) -> Objects[_PoolNode]:
    """Only the pool's nodes, as long as their labels say so, are known to policies: to them there is no other cluster."""

    def read(obj: dict[str, Any]) -> _PoolNode:
        metadata = obj["metadata"]
        labels = metadata.get("labels") or {}
        if not pool.selector.matches(labels):
            return _PoolNode(metadata["name"], {}, None)
        return _PoolNode(metadata["name"], labels, node_facts(obj))

    def changed(former: _PoolNode | None, now: _PoolNode | None) -> None:
        if former is not None:
            pool.outside.discard(former.name)
            if former.facts is not None and (now is None or now.facts is None):
                del pool.labels[former.name]
                pool.schedulable.discard(former.name)
                pool.sizes.drop(former.name)
                world.state.drop_node(former.name)
        if now is not None and now.facts is None:
            pool.outside.add(now.name)
        elif now is not None and now.facts is not None:
            if former is None or former.facts != now.facts:
                world.state.put_node(now.facts)
            pool.labels[now.name] = now.labels
            pool.sizes.put(now.facts)
            (pool.schedulable.add if now.facts.schedulable else pool.schedulable.discard)(now.name)

    return Objects(read, changed, limits=MOST_NODES)


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
        """Forget a pod that was deleted or has finished."""
        self._pool.foreign.pop(obj["metadata"]["uid"], None)
        super().drop(obj)

    def sweep(self, uids: set[str]) -> Iterator[None]:
        """Bound pods that are not in the list are gone; calls are in no list."""
        self._pool.foreign = {uid: node for uid, node in self._pool.foreign.items() if uid in uids}
        yield from super().sweep(uids | self._leases.uids)

    def __len__(self) -> int:
        return self._world.state.pods - len(self._leases)
