"""The books of one billed run: what nodes cost from their first to their last moment, and what became of every pod. Pure arithmetic.

Times are seconds of model time from the beginning of what is billed, as `bill_trace` has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiphys_models.lab.report import Row, percentile
from tiphys_testbed.bench.bill_trace import BatchPod, Service, Trace

IDLE_W_PER_CORE, BUSY_W_PER_CORE = 8.6, 17.1
"""An eighth of the power of the fleet's machine of 8 cores (selection's `B8ms`) at rest and at full load."""


@dataclass(slots=True)
class ClaimLife:
    """One NodeClaim, as a watch saw it."""

    name: str
    begin_s: float
    end_s: float = math.inf
    usd_per_hour: float = 0.0
    cores: float = 0.0


@dataclass(slots=True)
class PodLife:
    """One pod, as a watch saw it."""

    name: str
    kind: str
    """The service's name, or `batch`."""
    cpu_milli: int
    created_s: float
    bound_s: float = math.inf
    ready_s: float = math.inf
    ended_s: float = math.inf
    """When it succeeded, was evicted or was deleted."""
    succeeded: bool = False
    evicted: bool = False
    trace_name: str = ""
    """Which batch pod of the trace it runs, also where it is not the first to try."""


@dataclass(slots=True)
class Books:
    """Everything that was seen in a run."""

    claims: dict[str, ClaimLife] = field(default_factory=dict)
    pods: dict[str, PodLife] = field(default_factory=dict)


def cut(begin_s: float, end_s: float, window_s: float) -> float:
    """How much of it lies in the window."""
    return max(min(end_s, window_s) - max(begin_s, 0.0), 0.0)


def node_figures(claims: Sequence[ClaimLife], pods: Sequence[PodLife], window_s: float) -> Row:
    """The bill, and what else nodes were."""
    hours = [cut(claim.begin_s, claim.end_s, window_s) / 3600 for claim in claims]
    core_hours = sum(hour * claim.cores for hour, claim in zip(hours, claims, strict=True))
    busy_core_hours = sum(cut(pod.bound_s, pod.ended_s, window_s) / 3600 * pod.cpu_milli / 1000 for pod in pods if pod.bound_s < math.inf)
    energy_wh = core_hours * IDLE_W_PER_CORE + busy_core_hours * (BUSY_W_PER_CORE - IDLE_W_PER_CORE)
    return {
        "usd": sum(hour * claim.usd_per_hour for hour, claim in zip(hours, claims, strict=True)),
        "node_hours": sum(hours),
        "energy_kwh": energy_wh / 1000,
        "claims": sum(hour > 0 for hour in hours),
        "most_nodes": most_at_once(claims, window_s),
        "cpu_share": busy_core_hours / core_hours if core_hours else math.nan,
    }


def most_at_once(claims: Sequence[ClaimLife], window_s: float) -> int:
    """The most nodes that were there at one moment of the window."""
    moves = []
    for claim in claims:
        if cut(claim.begin_s, claim.end_s, window_s) > 0:
            moves += [(max(claim.begin_s, 0.0), 1), (claim.end_s, -1)]
    count = most = 0
    for _, move in sorted(moves):
        count += move
        most = max(most, count)
    return most


def pod_figures(trace: Trace, pods: Sequence[PodLife]) -> Row:
    """Evictions, lost work, deadlines, waiting and what services lacked, as far as they fall into the window."""
    end_s = trace.window_s
    inside = [pod for pod in pods if pod.created_s < end_s]
    batch = [pod for pod in inside if pod.kind == "batch"]
    evicted = [pod for pod in inside if pod.evicted and 0 <= pod.ended_s < end_s]
    lost = [pod for pod in evicted if pod.kind == "batch" and pod.bound_s < math.inf]
    waits = sorted(min(pod.bound_s, end_s) - pod.created_s for pod in inside if pod.created_s >= 0)
    return {
        "evictions_batch": sum(pod.kind == "batch" for pod in evicted),
        "evictions_service": sum(pod.kind != "batch" for pod in evicted),
        "lost_core_hours": sum((pod.ended_s - pod.bound_s) / 3600 * pod.cpu_milli / 1000 for pod in lost),
        "missed_share": missed_share(trace, batch),
        "service_shortfall": shortfall(trace.services, inside, end_s),
        "pending_p50_s": percentile(waits, 50) if waits else math.nan,
        "pending_p95_s": percentile(waits, 95) if waits else math.nan,
        "pods": len(inside),
    }


def missed_share(trace: Trace, batch: Sequence[PodLife]) -> float:
    """Of the batch pods that were due in the window, those that had not succeeded by then."""
    done_s = {pod.trace_name: pod.ended_s for pod in batch if pod.succeeded}
    due: list[BatchPod] = [pod for pod in trace.batch if 0 <= pod.due_s < trace.window_s]
    return sum(done_s.get(pod.name, math.inf) > pod.due_s for pod in due) / len(due) if due else 0.0


def shortfall(services: Sequence[Service], pods: Sequence[PodLife], end_s: float, step_s: float = 5.0) -> float:
    """Share of the wanted replicas' time in which they were not ready."""
    times = np.arange(step_s / 2, end_s, step_s)
    wanted = missing = 0.0
    for service in services:
        own = [pod for pod in pods if pod.kind == service.name]
        ready = np.zeros(len(times))
        for pod in own:
            ready += (times >= pod.ready_s) & (times < pod.ended_s)
        there = np.array([service.replicas_at(float(at_s)) for at_s in times])
        wanted += float(there.sum())
        missing += float(np.maximum(there - ready, 0).sum())
    return missing / wanted if wanted else 0.0


def unbound(trace: Trace, pods: Sequence[PodLife]) -> int:
    """Pods that came in good time and had no node at the end: something is broken."""
    return sum(pod.bound_s == math.inf and pod.ended_s == math.inf and pod.created_s < trace.window_s - trace.tail_s for pod in pods)
