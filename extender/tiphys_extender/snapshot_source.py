"""A snapshot file in the place of an API server: for support, benchmarks and contract tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiphys_extender.decide import World
from tiphys_extender.metrics import Metrics
from tiphys_extender.watches import PolicySink
from tiphys_models.domain.clock import Clock
from tiphys_models.domain.facts import node_facts, pod_facts
from tiphys_models.placement.snapshot import read_snapshot


def load_snapshot(path: Path, world: World, metrics: Metrics, clock: Clock) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put nodes, pods and policies into the world, as if just listed; returns readings and idle instances."""
    snapshot = read_snapshot(path)
    for node in snapshot.nodes:
        world.state.put_node(node_facts(node))
    now_s = clock.now_s()
    for pod in snapshot.pods:
        world.state.put_pod(pod_facts(pod), now_s)
    policies = PolicySink(world, metrics)
    for policy in snapshot.policies:
        policies.put(policy)
    world.synced = True
    counts = {"nodes": len(snapshot.nodes), "pods": len(snapshot.pods), "policies": len(snapshot.policies), "switch": 0}
    for kind, count in counts.items():
        metrics.cache_objects[kind].set(count)
        metrics.cache_synced[kind].set(1)
        metrics.last_event[kind].set(snapshot.taken_at_s)
    return snapshot.readings, snapshot.idle
