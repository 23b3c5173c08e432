"""Sizes of simulated services: what is in force, what was ordered, and what is under way, for a resize in place may take its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.scaling.sim.learning import Learning
from tiphys_models.scaling.sim.load import STARTS, Load
from tiphys_models.scaling.sim.plant import Plant
from tiphys_models.scaling.sim.scenario import PERIOD_S, ServiceScenario


@dataclass(frozen=True, slots=True)
class _Change:
    """A step under way."""

    due: int
    """Period in which it is done."""
    service: int
    cpu_m: float
    replicas: int | None
    """Pods that are left, where their removal waits for the resize that makes up for it."""


class Sizes:
    """Times are counted in CFS periods from the start."""

    def __init__(
        self, loads: Sequence[Load], scenario: ServiceScenario, plant: Plant, learning: Learning, replicas: IntArray, cpu_m: FloatArray
    ) -> None:
        self._loads, self._s, self._plant, self._learning = loads, scenario, plant, learning
        self._ready_s = np.zeros((len(loads), scenario.max_replicas))
        self._started, self._resized = np.zeros(len(loads), np.int64), np.zeros(len(loads), np.int64)
        self._under_way: list[_Change] = []
        self.start_with(replicas, cpu_m)

    def start_with(self, replicas: IntArray, cpu_m: FloatArray) -> None:
        """Sizes before the first window."""
        self.replicas, self.cpu_m = replicas, cpu_m
        self.ordered_replicas, self.ordered_m = replicas, cpu_m

    def ready(self, now: int) -> IntArray:
        """Pods that serve, of those that were ordered."""
        s = self._s
        there = np.arange(s.max_replicas) < self.ordered_replicas[:, None]
        return np.asarray(((self._ready_s <= now * PERIOD_S + 1e-9) & there).sum(axis=1))

    def next_change(self, now: int) -> int:
        """The next period in which something that is under way is done; never, as far as a window goes, where nothing is."""
        return min((change.due for change in self._under_way), default=now + self._s.periods)

    def order(self, replicas: IntArray, cpu_m: FloatArray, now: int) -> None:
        """Sizes to go to: pods start at once, resizes are done in their time, and pods go with the resize that makes up for them."""
        for i in np.flatnonzero(replicas > self.ordered_replicas).tolist():
            self._start_pods(i, int(replicas[i]), now)
        if self._s.resize_s == (0.0, 0.0):
            for i in np.flatnonzero(replicas < self.replicas).tolist():
                self._plant.stop_pods(i, int(replicas[i]))
            self.replicas, self.cpu_m = replicas, cpu_m
        else:
            for i in np.flatnonzero((replicas != self.ordered_replicas) | (cpu_m != self.ordered_m)).tolist():
                self._begin(i, int(replicas[i]), float(cpu_m[i]), now)
        self.ordered_replicas, self.ordered_m = replicas, cpu_m

    def carry_out(self, now: int) -> None:
        """What is due by now is in force."""
        for change in [c for c in self._under_way if c.due <= now]:
            self.cpu_m = self.cpu_m.copy()
            self.cpu_m[change.service] = change.cpu_m
            if change.replicas is not None:
                self._remove(change.service, min(change.replicas, int(self.replicas[change.service])))
        self._under_way = [c for c in self._under_way if c.due > now]

    def _begin(self, i: int, replicas: int, cpu_m: float, now: int) -> None:
        fewer, larger = replicas < self.replicas[i], cpu_m > self.ordered_m[i]
        if fewer and not larger:
            self._remove(i, replicas)
        elif not fewer:
            self.replicas = self.replicas.copy()
            self.replicas[i] = replicas
        # pods that are wanted after all are not removed by what is under way
        self._under_way = [replace(c, replicas=max(c.replicas, replicas)) if c.service == i and c.replicas else c for c in self._under_way]
        low, high = self._s.resize_s
        wait_s = low + (high - low) * self._loads[i].resizes[self._resized[i] % STARTS]
        self._resized[i] += 1
        # one after another: what was ordered first is done first
        due = max([now + max(round(wait_s / PERIOD_S), 1), *(c.due for c in self._under_way if c.service == i)])
        self._under_way.append(_Change(due, i, cpu_m, replicas if fewer and larger else None))

    def _remove(self, i: int, left: int) -> None:
        self._plant.stop_pods(i, left)
        self.replicas = self.replicas.copy()
        self.replicas[i] = left

    def _start_pods(self, i: int, replicas: int, now: int) -> None:
        low, high = self._s.start_s
        for pod in range(int(self.replicas[i]), replicas):
            wait_s = low + (high - low) * self._loads[i].starts[self._started[i] % STARTS]
            now_s = _seconds(now, self._s)
            self._ready_s[i, pod] = now_s + wait_s
            self._started[i] += 1
            self._learning.starts(i, now_s, float(self._ready_s[i, pod]))
            self._plant.start_pod(i, pod, float(self._ready_s[i, pod]))


def _seconds(periods: int, scenario: ServiceScenario) -> float:
    """A window's end is counted in windows: sums of periods would be off in the last digit."""
    whole, part = divmod(periods, scenario.periods)
    return whole * scenario.window_s + part * PERIOD_S
