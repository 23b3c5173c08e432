"""What is possible now: bounds narrowed by quotas, nodes and refusals, and moves that must wait. Agents see this before they decide."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_models.api.scaling_status import Blocked
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.quantity import quantity
from tiphys_models.scaling.state import Bounds, Mask, Window
from tiphys_operator.cluster.live import LiveNode
from tiphys_operator.cluster.scaled import Resize, ScaledPod
from tiphys_operator.scaling.conflicts import part
from tiphys_operator.scaling.resizing import stuck
from tiphys_operator.scaling.shape import Shape
from tiphys_operator.scaling.workload import Target

_MILLI = 1000.0
_QUOTA_NAMES: Mapping[str, tuple[str, float]] = {
    "cpu": ("requests.cpu", _MILLI),
    "requests.cpu": ("requests.cpu", _MILLI),
    "limits.cpu": ("limits.cpu", _MILLI),
    "memory": ("requests.memory", 1.0),
    "requests.memory": ("requests.memory", 1.0),
    "limits.memory": ("limits.memory", 1.0),
}


@dataclass(frozen=True, slots=True)
class Place:
    """What surrounds a workload."""

    nodes: Mapping[str, LiveNode]
    used_m: Mapping[str, int]
    """CPU that all pods on a node ask for."""
    quotas: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """What one decision may do: bounds, and moves that must wait."""

    bounds: Bounds
    mask: Mask
    masked: tuple[str, ...]
    """The moves that must wait, each as `move: reason`."""


def room(
    spec: ScalingPolicySpec, target: Target, shape: Shape, pods: Sequence[ScaledPod], cpu_m: int, place: Place,
    blocked: Iterable[Blocked], window: Window | None, silent: Sequence[str], now_s: float,
) -> Room:  # fmt: skip
    """Bounds of the spec, and of everything that says no."""
    said: dict[str, MaskReason] = {}
    horizontal, vertical = spec.horizontal, spec.vertical
    least, most = (horizontal.min_replicas, horizontal.max_replicas) if horizontal else (target.replicas, target.replicas)
    small, large = (vertical.min_cpu_milli, vertical.max_cpu_milli) if vertical else (cpu_m, cpu_m)

    def narrow(move: str, bound: int, now: int, reason: MaskReason) -> int:
        if bound < now:
            said.setdefault(move, reason)
        return min(bound, now)

    if horizontal:
        more = quota_pods(place.quotas, target, shape, cpu_m)
        if more is not None:
            most = narrow("replicas-up", target.replicas + more, most, MaskReason.QUOTA)
    if vertical:
        most_here = node_limit(place, pods, shape, cpu_m)
        if most_here is not None:
            large = narrow("cpu-up", most_here, large, MaskReason.NODE_CAPACITY)
        extra = quota_cpu(place.quotas, shape, max(len(pods), 1))
        if extra is not None:
            large = narrow("cpu-up", cpu_m + extra, large, MaskReason.QUOTA)
    for entry in blocked:
        if entry.until <= now_s:
            continue
        reason = MaskReason(entry.reason)
        # an entry keeps from moving, it never moves: no shrinking below what is there, no growing above it
        if entry.move == "replicas-up" and horizontal:
            most = narrow("replicas-up", max(entry.bound, min(target.replicas, max(least, len(pods)))), most, reason)
        elif entry.move == "replicas-down" and horizontal and (kept := min(entry.bound, target.replicas)) > least:
            said.setdefault("replicas-down", reason)
            least = kept
        elif entry.move == "cpu-up" and vertical:
            large = narrow("cpu-up", max(entry.bound, min(cpu_m, _least_kept(pods, shape, cpu_m, small, now_s))), large, reason)
        elif entry.move == "cpu-down" and vertical and (kept := min(entry.bound, cpu_m)) > small:
            # never above what is there: a raise that was refused must not come back as a bound
            said.setdefault("cpu-down", reason)
            small = kept
    replicas_up, cpu_up, down = _pending(pods, target, window, silent, spec.objective.percentile / 100)
    for move, held in (("replicas-up", replicas_up), ("cpu-up", cpu_up), ("replicas-down", down), ("cpu-down", down)):
        if held is not None:
            said.setdefault(move, held)
    created = not target.not_created
    if not created and horizontal:
        # back to the pods that exist is no shrinking, but further down would be
        least = max(least, len(pods)) if down is not None else least
    bounds = Bounds(min(least, most), max(most, 1), min(small, large), large)
    mask = Mask(replicas_up is None, down is None or not created, cpu_up is None, down is None)
    return Room(bounds, mask, tuple(f"{move}: {reason}" for move, reason in said.items()))


def _least_kept(pods: Sequence[ScaledPod], shape: Shape, cpu_m: int, small: int, now_s: float) -> int:
    """What no entry in a status takes away: the size of the spec's lower bound, or what a pod has whose node never gives it that."""
    has = [(stuck(pod, now_s), cpu.actual_limit_m) for pod in pods if (cpu := pod.container(shape.container)) and cpu.actual_limit_m]
    # that a resize is stuck is said by the pod: without this, a size that never fits would be asked for again as soon as it is taken back
    never = [limit_m for is_stuck, limit_m in has if is_stuck]
    return max(never) if never else max(small, min((limit_m for _, limit_m in has), default=cpu_m))


def _pending(
    pods: Sequence[ScaledPod], target: Target, window: Window | None, silent: Sequence[str], percentile: float
) -> tuple[MaskReason | None, MaskReason | None, MaskReason | None]:
    """Why neither pods nor CPU may be added, and why nothing may shrink."""
    replicas_up = MaskReason.PODS_UNSCHEDULABLE if any(p.unschedulable for p in pods) else None
    cpu_up = MaskReason.RESIZE_PENDING if any(p.resize in (Resize.DEFERRED, Resize.INFEASIBLE) for p in pods) else None
    if silent:
        return replicas_up, cpu_up, MaskReason.METRICS_PARTIAL
    if target.rolling_out:
        return replicas_up, cpu_up, MaskReason.ROLLING_OUT
    if window is not None and window.late is not None and window.late > 1 - percentile + 1e-9:
        return replicas_up, cpu_up, MaskReason.OBJECTIVE_MISSED
    return replicas_up, cpu_up, None


def node_limit(place: Place, pods: Sequence[ScaledPod], shape: Shape, cpu_m: int) -> int | None:
    """Largest limit that all pods can have where they are, what they have included; None while none is on a known node."""
    by_node: dict[str, int] = defaultdict(int)
    for pod in pods:
        if pod.node in place.nodes:
            by_node[pod.node] += 1
    found = []
    for name, count in by_node.items():
        free_m = max(place.nodes[name].allocatable_m - place.used_m.get(name, 0), 0)
        request = shape.request(cpu_m) + free_m // count
        found.append(request if shape.request_m >= shape.limit_m else request * shape.limit_m // max(shape.request_m, 1))
    return max(min(found), cpu_m) if found else None


def quota_pods(quotas: Iterable[Mapping[str, Any]], target: Target, shape: Shape, cpu_m: int) -> int | None:
    """How many more pods of the present size the namespace's quotas allow; None if they set no limit."""
    # a new pod starts at the template's size and is then brought to that of the others
    grown = max(cpu_m - shape.limit_m, 0)
    need = dict(target.template_requests)
    need["limits.cpu"] += grown
    need["requests.cpu"] += max(shape.request(cpu_m) - shape.request_m, 0)
    return _room(quotas, need | {"pods": 1.0})


def quota_cpu(quotas: Iterable[Mapping[str, Any]], shape: Shape, count: int) -> int | None:
    """How many more millicores of limit every one of `count` pods may have; None if quotas set no limit."""
    return _room(quotas, {"limits.cpu": count, "requests.cpu": count * shape.request_m / shape.limit_m})


def _room(quotas: Iterable[Mapping[str, Any]], need: Mapping[str, float]) -> int | None:
    """How many times `need` fits into what is left."""
    fits: list[float] = []
    for quota in quotas:
        specified, status = part(quota, "spec"), part(quota, "status")
        # a quota for certain pods only: whether ours are among them shows when the API server refuses
        if specified.get("scopeSelector") or any(scope != "NotTerminating" for scope in specified.get("scopes") or ()):
            continue
        hard, used = part(status, "hard"), part(status, "used")
        for name, amount in hard.items():
            key, unit = ("pods", 1.0) if name in ("pods", "count/pods") else _QUOTA_NAMES.get(name, ("", 1.0))
            if need.get(key):
                try:
                    left = (quantity(amount) - quantity(used.get(name, 0))) * unit
                except InvalidInput:
                    continue
                fits.append(left / need[key])
    return max(math.floor(min(fits) + 1e-9), 0) if fits else None
