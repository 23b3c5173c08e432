"""Rules: the two calibrated ones, which are the bars and what learned agents start from; the published threshold.

The calibrated rules estimate the coming window's rate, with margins, and buy as much CPU as that takes: `rule` by the size of its
pods at once, with replicas following the longer maximum; `rule-horizontal` by the number of pods of one size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.seen import ServiceHistory


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """What calibration chooses; `tiphys bench scaling --calibrate` searches them on the train split."""

    headroom: float = 1.1
    """The estimate is multiplied by it: the margin, and the axis of the rule's frontier."""
    last: int = 1
    """The estimate starts from the highest rate of so many windows."""
    rise: float = 0.5
    """Share of the last rise that is expected once more."""
    spread: float = 0.0
    """Standard deviations of the last eight rates that are added."""
    keep: int = 20
    """Windows whose highest rate the replicas are made for."""
    pod_m: float = 500.0
    """`rule`: a pod is planned to grow to this size; `rule-horizontal`: the size of every pod."""
    spare_m: float = 0.0
    """Millicores a pod gets beyond its share: small pods feel single requests more."""


def highest(seen: ServiceHistory, windows: int) -> FloatArray:
    """Highest rate of the last windows."""
    return np.asarray(np.nan_to_num(seen.rates[:, -windows:], nan=0.0).max(axis=1))


def expected_rate(seen: ServiceHistory, s: RuleSetting) -> FloatArray:
    """Requests a second to be ready for in the coming window, without headroom and backlog."""
    now, before = seen.rates[:, -1], seen.rates[:, -2]
    rise = np.maximum(np.nan_to_num(now - before), 0.0)
    estimate = highest(seen, s.last) + s.rise * rise
    if s.spread:
        recent = seen.rates[:, -8:]
        counted = np.maximum((~np.isnan(recent)).sum(axis=1), 1)
        mean = np.nansum(recent, axis=1) / counted
        estimate = estimate + s.spread * np.sqrt(np.nansum((recent - mean[:, None]) ** 2, axis=1) / counted)
    return np.asarray(estimate)


def needed_m(seen: ServiceHistory, rate: FloatArray, headroom: float | FloatArray) -> FloatArray:
    """Millicores for this rate with headroom, and for the backlog within one window."""
    return np.asarray((rate * headroom + seen.waiting() / seen.window_s) * seen.cpu_ms)


def pod_size(seen: ServiceHistory, pod_m: float) -> FloatArray:
    """The size that is meant, as far as the workload's bounds allow it: those of a workload that may not be resized leave one size only."""
    return np.asarray(np.clip(pod_m, seen.min_cpu_m, seen.max_cpu_m))


def pods_for(seen: ServiceHistory, needed: FloatArray, s: RuleSetting) -> IntArray:
    """Pods of the calibrated size that together have the CPU needed; at least one."""
    return np.asarray(np.maximum(np.ceil(needed / pod_size(seen, s.pod_m) - 1e-6), 1), np.int64)


def replicas_for(seen: ServiceHistory, needed: FloatArray, s: RuleSetting) -> IntArray:
    """Pods for the CPU needed now, and for the highest rate of the last `keep` windows."""
    return pods_for(seen, np.maximum(needed, highest(seen, s.keep) * s.headroom * seen.cpu_ms), s)


@dataclass(frozen=True, slots=True)
class Rule:
    """Horizontal and vertical: the bar."""

    setting: RuleSetting = RuleSetting()
    name: str = "rule"
    actions: tuple[str, ...] = ()

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        s = self.setting
        needed = needed_m(seen, expected_rate(seen, s), s.headroom)
        replicas = np.clip(replicas_for(seen, needed, s), seen.min_replicas, seen.max_replicas)
        return Answers(replicas, np.minimum(needed / replicas + s.spare_m, seen.max_cpu_m))


@dataclass(frozen=True, slots=True)
class RuleHorizontal:
    """Pods of one calibrated size."""

    setting: RuleSetting = RuleSetting()
    name: str = "rule-horizontal"
    actions: tuple[str, ...] = ()

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        s = self.setting
        needed = needed_m(seen, expected_rate(seen, s), s.headroom)
        return Answers(replicas_for(seen, needed, s), pod_size(seen, s.pod_m))


@dataclass(frozen=True, slots=True)
class Naive:
    """The published threshold rule: CPU of a pod above 250m means one replica more, else one fewer. It never holds still."""

    threshold_m: float = 250.0
    pod_m: float = 500.0
    name: str = "naive"
    actions: tuple[str, ...] = ()

    def answer(self, seen: ServiceHistory) -> Answers:
        """Replicas and CPU for every service; implements `ScalingAgent.answer`."""
        used = seen.used_cpu_m[:, -1] / np.maximum(seen.ready, 1)
        step = np.where(np.isnan(used), 0, np.where(used > self.threshold_m, 1, -1))
        return Answers(np.maximum(seen.replicas + step, 1), pod_size(seen, self.pod_m))
