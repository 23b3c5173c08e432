"""A snapshot file in the place of an API server: for support, benchmarks and contract tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiphys_extender.placement.decide import World
from tiphys_extender.placement.objects import policy_objects
from tiphys_extender.serve.metrics import KINDS, Metrics
from tiphys_models.base.clock import Clock
from tiphys_models.base.facts import node_facts, pod_facts
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.snapshot import profile_from, records, taken_at_s


def load_snapshot(
    path: Path, world: World, metrics: Metrics, clock: Clock
) -> tuple[dict[str, Any], dict[str, Any], dict[str, FunctionProfile]]:
    """Put nodes, pods and policies into the world, as if just listed; returns readings, idle instances and call profiles."""
    counts = dict.fromkeys(KINDS, 0)
    readings: dict[str, list[float | None]] = {}
    idle: dict[str, dict[str, float]] = {}
    profiles: dict[str, FunctionProfile] = {}
    policies = policy_objects(world, metrics)
    for kind, content in records(path):
        match kind:
            case "node":
                world.state.put_node(node_facts(content))
                counts["nodes"] += 1
            case "pod":
                world.state.put_pod(pod_facts(content), clock.now_s())
                counts["pods"] += 1
            case "policy":
                policies.put(content)
                counts["policies"] += 1
            case "readings":
                readings[content["node"]] = content["values"]
            case "profile":
                profiles[content["function"]] = profile_from(content)
            case _:
                idle[content["function"]] = content["nodes"]
    world.synced = True
    for kind, count in counts.items():
        metrics.cache_objects[kind].set(count)
        metrics.cache_synced[kind].set(1)
        metrics.last_event[kind].set(taken_at_s(path))
    return readings, idle, profiles
