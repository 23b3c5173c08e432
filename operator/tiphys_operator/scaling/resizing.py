"""What to do about every pod's size: the state machine of in-place resizes, as a function of what the pods say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_models.api.scaling_status import PodSizes
from tiphys_operator.cluster.scaled import ContainerCpu, Resize, ScaledPod
from tiphys_operator.scaling.shape import Shape

DEFERRED_MAX_S = 300.0
"""The longest wait for a node to get room; the vertical pod autoscaler (VPA) waits as long."""
IN_PROGRESS_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class SizePod:
    """Give a pod this size."""

    pod: ScaledPod
    container: str
    limit_m: int
    request_m: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """What is to be resized among all pods of a workload, and what was found on the way."""

    changes: tuple[SizePod, ...]
    counts: PodSizes
    too_large: tuple[int, MaskReason] | None = None
    """The largest size that works, where a larger one never did."""


def sizing(pods: Sequence[ScaledPod], shape: Shape, wanted_m: int, now_s: float, *, shrink: bool = True) -> Sizing:
    """Changes that bring every pod to the wanted size, or back to what it has where a larger one does not work."""
    changes: list[SizePod] = []
    back: list[int] = []
    sized = 0
    for pod in pods:
        cpu = pod.container(shape.container)
        if pod.deleting or cpu is None:
            continue
        has_m = cpu.actual_limit_m
        if has_m is None or cpu.limit_m is None:
            # not started: the API server refuses a resize before the kubelet has reported what the container has
            continue
        if stuck(pod, now_s):
            back.append(has_m)
            # a shrink like others: what never fitted is masked by the window that takes it back
            if shrink and has_m != cpu.limit_m:
                request_m = shape.request(has_m) if cpu.actual_request_m is None else cpu.actual_request_m
                changes.append(SizePod(pod, shape.container, has_m, request_m))
            continue
        if cpu.limit_m == wanted_m:
            sized += pod.resize in (Resize.NONE, Resize.IN_PROGRESS)
            continue
        if _may_change(pod, cpu, wanted_m, shrink=shrink):
            changes.append(SizePod(pod, shape.container, wanted_m, shape.request(wanted_m)))
    counts = PodSizes(
        total=len(pods),
        ready=sum(p.ready for p in pods),
        sized=sized,
        deferred=sum(p.resize is Resize.DEFERRED for p in pods),
        infeasible=sum(p.resize is Resize.INFEASIBLE for p in pods),
        in_progress=sum(p.resize is Resize.IN_PROGRESS for p in pods),
        failing=sum(p.resize is Resize.ERROR for p in pods),
    )
    return Sizing(tuple(changes), counts, (max(back), MaskReason.NODE_CAPACITY) if back else None)


def stuck(pod: ScaledPod, now_s: float) -> bool:
    """Whether its resize will not come: never feasible, or waited for too long. An error is no verdict, the kubelet tries again."""
    waited_s = now_s - pod.resize_since_s if pod.resize_since_s is not None else 0.0
    match pod.resize:
        case Resize.INFEASIBLE:
            return True
        case Resize.DEFERRED:
            return waited_s > DEFERRED_MAX_S
        case Resize.IN_PROGRESS:
            return waited_s > IN_PROGRESS_MAX_S
        case _:
            return False


def _may_change(pod: ScaledPod, cpu: ContainerCpu, wanted_m: int, *, shrink: bool) -> bool:
    smaller = cpu.limit_m is not None and wanted_m < cpu.limit_m
    if pod.resize is Resize.DEFERRED:
        # less than what it waits for may fit; more would only begin the waiting anew
        return smaller
    return shrink or not smaller
