"""The fast simulator, compiled: what arrives in a CFS period is one portion of a central queue; pods together serve their quotas.

Exact in work and quota; a request's latency is known to within a period.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.scaling.sim.load import Load
from tiphys_models.scaling.sim.plant import PlantReadings, RequestCounts
from tiphys_models.scaling.sim.scenario import PERIOD_S, ServiceScenario

RING = 4096
"""Portions a queue can hold: more than a time-out's periods."""
_AT_ONCE_S = 0.004
"""p90 of requests that end in the period in which they came: exponential CPU time at full speed."""


class Fluid(NamedTuple):
    """State of the simulator; rows are services."""

    queued: FloatArray
    """[services, RING]: requests of a portion that are not yet served"""
    work_s: FloatArray
    """CPU seconds that the requests of a portion still need, [services, RING]."""
    ends: IntArray
    """[services, 2]: first portion in the queue, and the next free place, both counted in periods"""
    ready_at: FloatArray
    """[services, pods]: period from which a pod serves"""
    late: FloatArray
    """[services, windows]: requests by their arrival's window, late or never served"""
    never: FloatArray
    ages: FloatArray
    """[services, time-out in periods + 2]: requests completed in the window, by age"""


class FluidWindow(NamedTuple):
    """Readings of one window; each array has one entry a service."""

    arrived: FloatArray
    completed: FloatArray
    late: FloatArray
    used_s: FloatArray
    throttled: FloatArray
    waiting: FloatArray


@compiled
def flow(
    f: Fluid, m: FluidWindow, counts: FloatArray, works: FloatArray, replicas: IntArray, cpu_m: FloatArray, useful_m: FloatArray,
    target: FloatArray, time_out: int, first: int, passing: int, periods: int,
) -> None:  # fmt: skip
    """Let `passing` periods pass from the period `first` on; `target` in periods; arrivals of window w begin at period w x periods."""
    ring = f.queued.shape[1]
    for i in range(len(replicas)):
        per_pod = min(cpu_m[i], useful_m[i]) * 1e-4
        quota_binds = cpu_m[i] < useful_m[i]
        head, tail = f.ends[i, 0], f.ends[i, 1]
        for t in range(first, first + passing):
            ready = 0
            for k in range(replicas[i]):
                if f.ready_at[i, k] <= t:
                    ready += 1
            room = ready * per_pod
            f.queued[i, tail % ring] = counts[i, t]
            f.work_s[i, tail % ring] = works[i, t]
            tail += 1
            m.arrived[i] += counts[i, t]
            while head < tail:
                at = head % ring
                age = t - head
                if f.queued[i, at] <= 0.0:
                    head += 1
                    continue
                w = head // periods
                if age > time_out:
                    m.completed[i] += f.queued[i, at]
                    m.late[i] += f.queued[i, at]
                    f.ages[i, time_out + 1] += f.queued[i, at]
                    f.late[i, w] += f.queued[i, at]
                    f.never[i, w] += f.queued[i, at]
                    head += 1
                    continue
                if room <= 0.0:
                    break
                take = min(room, f.work_s[i, at])
                part = f.queued[i, at] * (take / f.work_s[i, at]) if f.work_s[i, at] > take else f.queued[i, at]
                room -= take
                m.used_s[i] += take
                m.completed[i] += part
                f.ages[i, age] += part
                if age > target[i]:
                    m.late[i] += part
                    f.late[i, w] += part
                f.queued[i, at] -= part
                f.work_s[i, at] -= take
                if f.work_s[i, at] <= 0.0:
                    f.queued[i, at] = 0.0
                    head += 1
            if room <= 1e-12 and quota_binds and ready > 0:
                m.throttled[i] += 1.0 / periods
        f.ends[i, 0], f.ends[i, 1] = head, tail
        waiting = 0.0
        for p in range(head, tail):
            waiting += f.queued[i, p % ring]
        m.waiting[i] = waiting


class FluidServices:
    """The fluid simulator as an `episode.Plant`."""

    def __init__(self, loads: Sequence[Load], scenario: ServiceScenario) -> None:
        n, s = len(loads), scenario
        self._time_out, self._first = round(s.time_out_s / PERIOD_S), 0
        windows = max(load.windows(s) for load in loads)
        tail = windows + -(-self._time_out // s.periods) + 1
        self._counts, self._works = np.zeros((n, tail * s.periods)), np.zeros((n, tail * s.periods))
        for i, load in enumerate(loads):
            kept = load.windows(s) * s.periods
            self._counts[i, :kept], self._works[i, :kept] = load.counts[:kept], load.work_s[:kept]
        self._useful_m = np.array([load.service.useful_m for load in loads])
        self._target = np.full(n, s.target_s / PERIOD_S)
        self._periods = s.periods
        self.fluid = Fluid(
            np.zeros((n, RING)), np.zeros((n, RING)), np.zeros((n, 2), np.int64), np.zeros((n, s.max_replicas)),
            np.zeros((n, tail)), np.zeros((n, tail)), np.zeros((n, self._time_out + 2)),
        )  # fmt: skip
        self._window = FluidWindow(*(np.zeros(n) for _ in FluidWindow._fields))

    def start_pod(self, service: int, pod: int, ready_s: float) -> None:
        """Note from which time on a pod serves."""
        self.fluid.ready_at[service, pod] = round(ready_s / PERIOD_S)

    def stop_pods(self, service: int, left: int) -> None:
        """All but the first `left`: the queue is central, so nothing is lost."""

    def pass_time(self, replicas: IntArray, cpu_m: FloatArray, periods: int) -> None:
        """Simulate a part of a window; implements `Plant.pass_time`."""
        flow(
            self.fluid, self._window, self._counts, self._works, replicas, cpu_m, self._useful_m, self._target, self._time_out, self._first,
            periods, self._periods,
        )  # fmt: skip
        self._first += periods

    def glance(self) -> tuple[FloatArray, FloatArray]:
        """Arrived in the window so far, and waiting; implements `Plant.glance`."""
        return self._window.arrived.copy(), self._window.waiting.copy()

    def advance(self, replicas: IntArray, cpu_m: FloatArray) -> PlantReadings:
        """Simulate one window with these sizes."""
        self.pass_time(replicas, cpu_m, self._periods)
        return self.read()

    def read(self) -> PlantReadings:
        """What was measured over the window; implements `Plant.read`."""
        f, m = self.fluid, self._window
        self._window = FluidWindow(*(np.zeros(len(m.arrived)) for _ in FluidWindow._fields))
        seconds = self._periods * PERIOD_S
        cumulative = np.cumsum(f.ages, axis=1)
        age = np.argmax(cumulative >= 0.9 * cumulative[:, -1:], axis=1)
        p90_s = np.where(cumulative[:, -1] > 0, np.where(age == 0, _AT_ONCE_S, (age - 0.5) * PERIOD_S), np.nan)
        f.ages[:] = 0.0
        return PlantReadings(m.arrived, m.completed, m.late, p90_s, m.waiting, 1000 * m.used_s / seconds, m.throttled)

    def counted(self, window: int) -> FloatArray:
        """Requests that arrived in a window."""
        return np.asarray(self._counts[:, window * self._periods : (window + 1) * self._periods].sum(axis=1))

    def outcome(self) -> RequestCounts:
        """Arrived, late and never served requests, counted in the window in which they arrived."""
        f = self.fluid
        return RequestCounts(self._counts.reshape(len(f.late), -1, self._periods).sum(axis=2), f.late, f.never)
