"""HorizontalPodAutoscaler as Kubernetes 1.36 has it: on CPU, and on requests a second as an external metric.

As `GetResourceReplicas`, `GetExternalPerPodMetricReplicas` and `normalizeDesiredReplicasWithBehaviors` in Kubernetes'
`pkg/controller/podautoscaler`; pods of one size, request = limit. What it recommended in the past follows from past readings, as if it had
always been outside its tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.rules import pod_size
from tiphys_models.scaling.seen import ServiceHistory


@dataclass(frozen=True, slots=True)
class Behavior:
    """`spec.behavior` of autoscaling/v2, with its defaults; rates are of one decision, which comes every 15 s."""

    up_stabilisation_s: float = 0.0
    down_stabilisation_s: float = 300.0
    up_pods: int = 4
    up_percent: int = 100
    """The larger one of both counts."""
    down_percent: int = 100
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1
    """Shares of the target; fields of `behavior` since Kubernetes 1.33, before a flag of the controller manager."""

    def within(self, ratio: FloatArray) -> BoolArray:
        """Whether a ratio to the target is close enough to do nothing."""
        return np.asarray((ratio >= 1 - self.down_tolerance) & (ratio <= 1 + self.up_tolerance))

    def limited(self, seen: ServiceHistory, now: IntArray, past: IntArray) -> IntArray:
        """Pods after stabilisation and rates; `past` are recommendations, [services, windows], the newest last."""
        up_windows = round(self.up_stabilisation_s / seen.window_s)
        low = np.minimum(now, past[:, -up_windows:].min(axis=1)) if up_windows else now
        high = np.maximum(now, past[:, -max(round(self.down_stabilisation_s / seen.window_s), 1) :].max(axis=1))
        most = np.maximum(np.ceil(seen.replicas * (1 + self.up_percent / 100)).astype(np.int64), seen.replicas + self.up_pods)
        least = np.floor(seen.replicas * (1 - self.down_percent / 100)).astype(np.int64)
        up, down = np.minimum(np.maximum(low, seen.replicas), most), np.maximum(np.minimum(high, seen.replicas), least)
        return np.asarray(np.maximum(np.where(now > seen.replicas, up, down), 1))


@dataclass(frozen=True, slots=True)
class HPA:
    """On CPU, whose utilisation it knows as a whole percentage."""

    target: float = 0.8
    pod_m: float = 500.0
    name: str = "hpa"
    actions: tuple[str, ...] = ()
    behavior: Behavior = field(default_factory=Behavior)

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        size, used = pod_size(seen, self.pod_m), np.nan_to_num(seen.used_cpu_m[:, -1])
        unknown = np.isnan(seen.used_cpu_m[:, -1]) | (seen.ready < 1)
        ready = np.clip(seen.ready, 1, seen.replicas)
        ratio, of_all = self._ratio(used, size * ready), self._ratio(used, size * seen.replicas)
        # pods that are not ready yet count as idle where the others would have it scale up, and not at all where not
        with_all = (ready < seen.replicas) & (ratio > 1)
        held = np.where(with_all, self.behavior.within(of_all) | (of_all < 1), self.behavior.within(ratio))
        recommended = np.ceil(np.where(with_all, of_all * seen.replicas, ratio * ready) - 1e-6).astype(np.int64)
        now = np.where(held | unknown, seen.replicas, recommended)
        past = np.ceil(np.nan_to_num(seen.used_cpu_m) / (size * self.target)[:, None] - 1e-6).astype(np.int64)
        return Answers(self.behavior.limited(seen, now, past), size)

    def _ratio(self, used: FloatArray, requested: FloatArray) -> FloatArray:
        percent = np.floor(100 * used / np.maximum(requested, 1e-9) + 1e-9)
        return np.asarray(percent / round(100 * self.target))


@dataclass(frozen=True, slots=True)
class RPSHPA:
    """On requests a second, an average a pod; its target follows from what a request takes, as somebody would measure it once."""

    target: float = 0.8
    """Share of what a pod of its size serves."""
    pod_m: float = 500.0
    name: str = "rps-hpa"
    actions: tuple[str, ...] = ()
    behavior: Behavior = field(default_factory=Behavior)

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        size, rate = pod_size(seen, self.pod_m), seen.rates[:, -1]
        a_pod = self.target * size / seen.cpu_ms
        ratio = np.nan_to_num(rate) / (a_pod * np.maximum(seen.replicas, 1))
        held = self.behavior.within(ratio) | np.isnan(rate)
        past = np.ceil(np.nan_to_num(seen.rates[:, -20:]) / a_pod[:, None] - 1e-6).astype(np.int64)
        now = np.where(held, seen.replicas, past[:, -1])
        return Answers(self.behavior.limited(seen, now, past), size)
