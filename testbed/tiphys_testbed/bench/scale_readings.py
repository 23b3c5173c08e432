"""What a Prometheus says of the made-up cluster of `tiphys bench scale`: node readings, idle instances, call profiles, all fresh."""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson

from tiphys_testbed.bench.scale_objects import NAMESPACES, Fleet

IDLE_NODES = 4
"""Nodes on which each workload has idle instances."""
_PROFILE = {"warm_seconds": 1.0, "cold_seconds": 2.0, "warm_core_seconds": 1.0, "cold_core_seconds": 2.0, "parallelism": 2.0}


def function_of(workload: int) -> str:
    """The identity of a workload's pods, which have no function label: namespace and controlling owner."""
    return f"team-{workload % NAMESPACES:02d}/ReplicaSet/workload-{workload:05d}-7d9c5b6f4d"


def answer(fleet: Fleet, query: str) -> bytes:
    """The answer to an instant query, as far as the services ask any."""
    at_s = time.time()
    samples: Iterator[tuple[dict[str, str], float]]
    if "timestamp(" in query:
        samples = (({"node": f"node-{n:05d}"}, at_s - 2.0) for n in range(fleet.nodes))
    elif "tiphys_runtime_idle_instances" in query:
        samples = _idle(fleet)
    elif "tiphys_runtime_call_profile" in query:
        functions = (function_of(w) for w in range(fleet.workloads))
        samples = (({"function": f, "quantity": q}, v) for f in functions for q, v in _PROFILE.items())
    elif "node_" in query:
        size = 1 + sum(query.encode()) % 97
        samples = (({"node": f"node-{n:05d}"}, size * (1 + n * 7919 % 101 / 100)) for n in range(fleet.nodes))
    else:
        samples = iter(())
    result = [{"metric": labels, "value": [at_s - 2.0, f"{value:.6f}"]} for labels, value in samples]
    return orjson.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})


def _idle(fleet: Fleet) -> Iterator[tuple[dict[str, str], float]]:
    for workload in range(fleet.workloads):
        for turn in range(IDLE_NODES if fleet.nodes else 0):
            yield (
                {"function": function_of(workload), "node": f"node-{(workload * 31 + turn * 1009) % fleet.nodes:05d}"},
                float(1 + turn % 3),
            )
