"""The exact simulator, compiled: every request waits, takes its CPU time at a pod's speed, and stands still while the quota is used up.

A central queue in order of arrival, or one a pod; time runs window by window, because sizes change in between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.lab.compiled import compiled, inlined
from tiphys_models.scaling.sim.load import Load
from tiphys_models.scaling.sim.plant import PlantReadings, RequestCounts
from tiphys_models.scaling.sim.scenario import PERIOD_S, ServiceScenario

BUCKETS = 128
"""Buckets of the latency histogram, equal in the logarithm: each 8 % wide."""
_SHORTEST_S, _LONGEST_S = 1e-3, 40.0
_PER_LOG = (BUCKETS - 1) / math.log(_LONGEST_S / _SHORTEST_S)
_NONE = -1
_NEVER = np.inf


class Pods(NamedTuple):
    """State of one service's pods; each array has one entry a pod."""

    ready_s: FloatArray
    free_s: FloatArray
    """When it can go on: the end of its last request, of a used-up period, or its readiness."""
    request: IntArray
    """What it is serving; -1: nothing."""
    left_s: FloatArray
    """CPU seconds that this still takes."""
    period: IntArray
    """The CFS period that `quota_s` is of."""
    quota_s: FloatArray
    used_s: FloatArray
    """CPU seconds of the window."""
    stopped: FloatArray
    """Periods of the window in which the quota was used up."""
    first: IntArray
    """Queues of their own, as linked lists through `following`: first and last request."""
    last: IntArray


class WindowTally(NamedTuple):
    """Requests completed in the window."""

    completed: FloatArray
    """Two counts: requests completed, and those of them that were late."""
    latency: FloatArray


@inlined
def _settle(
    tally: WindowTally, finish_s: FloatArray, arrival_s: FloatArray, r: int, at_s: float, target_s: float, time_out_s: float
) -> None:
    latency = at_s - arrival_s[r]
    if latency > time_out_s:
        finish_s[r] = _NEVER
    else:
        finish_s[r] = at_s
    tally.completed[0] += 1.0
    if latency > target_s:
        tally.completed[1] += 1.0
    place = np.log(max(latency, _SHORTEST_S) / _SHORTEST_S) * _PER_LOG
    tally.latency[min(int(place), BUCKETS - 1)] += 1.0


@inlined
def work(p: Pods, k: int, begin_s: float, until_s: float, cpu_m: float, useful_m: float) -> float:
    """Let pod k work on its request from `begin_s`: the time it ends, or inf if not before `until_s` (a boundary of periods)."""
    speed = useful_m / 1000.0
    full = cpu_m * 1e-3 * PERIOD_S
    t = begin_s
    period = int(t / PERIOD_S + 1e-9)
    while t < until_s - 1e-9:
        if p.period[k] != period:
            p.period[k], p.quota_s[k] = period, full
        end = (period + 1) * PERIOD_S
        room = min(p.quota_s[k], max(end - t, 0.0) * speed)
        take = min(p.left_s[k], room)
        p.left_s[k] -= take
        p.quota_s[k] -= take
        p.used_s[k] += take
        if p.quota_s[k] <= 1e-12 and take > 0.0:
            p.stopped[k] += 1.0
        if p.left_s[k] <= 1e-12:
            return float(t + take / speed)
        t = end
        period += 1
    return _NEVER


@inlined
def _go_on(
    p: Pods, tally: WindowTally, arrival_s: FloatArray, finish_s: FloatArray, k: int, begin_s: float, until_s: float, cpu_m: float,
    useful_m: float, target_s: float, time_out_s: float,
) -> None:  # fmt: skip
    end = work(p, k, begin_s, until_s, cpu_m, useful_m)
    if end < _NEVER:
        _settle(tally, finish_s, arrival_s, p.request[k], end, target_s, time_out_s)
        p.request[k] = _NONE
        # a pod without quota would take the next request only to let it stand: others come first
        p.free_s[k] = end if p.quota_s[k] > 1e-12 else (p.period[k] + 1) * PERIOD_S


@compiled
def serve_central(
    p: Pods, tally: WindowTally, arrival_s: FloatArray, cpu_s: FloatArray, finish_s: FloatArray, head: int, pods: int, cpu_m: float,
    useful_m: float, begin_s: float, until_s: float, target_s: float, time_out_s: float,
) -> int:  # fmt: skip
    """One window of one queue for all: returns the first request that nobody has taken."""
    count = len(arrival_s)
    for k in range(pods):
        if p.request[k] != _NONE:
            _go_on(p, tally, arrival_s, finish_s, k, begin_s, until_s, cpu_m, useful_m, target_s, time_out_s)
    while head < count and arrival_s[head] < until_s:
        if arrival_s[head] + time_out_s < begin_s:
            _settle(tally, finish_s, arrival_s, head, _NEVER, target_s, time_out_s)
            head += 1
            continue
        k, best = _NONE, until_s
        for j in range(pods):
            if p.request[j] == _NONE and max(p.free_s[j], p.ready_s[j]) < best:
                k, best = j, max(p.free_s[j], p.ready_s[j])
        if k == _NONE:
            break
        start = max(best, arrival_s[head])
        if start - arrival_s[head] > time_out_s:
            _settle(tally, finish_s, arrival_s, head, _NEVER, target_s, time_out_s)
        else:
            p.request[k], p.left_s[k] = head, cpu_s[head]
            _go_on(p, tally, arrival_s, finish_s, k, start, until_s, cpu_m, useful_m, target_s, time_out_s)
        head += 1
    return head


@compiled
def give_to_pods(
    p: Pods, following: IntArray, arrival_s: FloatArray, draw: FloatArray, head: int, pods: int, until_s: float
) -> int:  # fmt: skip
    """Arrivals up to `until_s` go to a ready pod each, drawn evenly; while none is ready, to the one that will be first."""
    count = len(arrival_s)
    while head < count and arrival_s[head] < until_s:
        ready = 0
        for k in range(pods):
            if p.ready_s[k] <= arrival_s[head]:
                ready += 1
        pick, chosen = int(draw[head] * ready), 0
        for k in range(pods):
            if ready == 0:
                chosen = k if p.ready_s[k] < p.ready_s[chosen] else chosen
            elif p.ready_s[k] <= arrival_s[head]:
                if pick == 0:
                    chosen = k
                pick -= 1
        following[head] = _NONE
        if p.first[chosen] == _NONE:
            p.first[chosen] = head
        else:
            following[p.last[chosen]] = head
        p.last[chosen] = head
        head += 1
    return head


@compiled
def serve_own(
    p: Pods, tally: WindowTally, following: IntArray, arrival_s: FloatArray, cpu_s: FloatArray, finish_s: FloatArray, k: int, cpu_m: float,
    useful_m: float, begin_s: float, until_s: float, target_s: float, time_out_s: float,
) -> None:  # fmt: skip
    """Pod k's own queue until `until_s`."""
    if p.request[k] != _NONE:
        _go_on(p, tally, arrival_s, finish_s, k, begin_s, until_s, cpu_m, useful_m, target_s, time_out_s)
    while p.request[k] == _NONE and p.first[k] != _NONE:
        r = p.first[k]
        start = max(p.free_s[k], p.ready_s[k], arrival_s[r])
        if start >= until_s:
            break
        p.first[k] = following[r]
        if start - arrival_s[r] > time_out_s:
            _settle(tally, finish_s, arrival_s, r, _NEVER, target_s, time_out_s)
        else:
            p.request[k], p.left_s[k] = r, cpu_s[r]
            _go_on(p, tally, arrival_s, finish_s, k, start, until_s, cpu_m, useful_m, target_s, time_out_s)


class _Service:
    """One service's pods and queue."""

    def __init__(self, load: Load, s: ServiceScenario) -> None:
        if load.arrival_s is None or load.cpu_s is None:
            raise ValueError("single requests were not drawn: draw_load(..., requests=True)")
        self.arrival_s, self.cpu_s, self.useful_m, self._s = load.arrival_s, load.cpu_s, load.service.useful_m, s
        self.finish_s = np.full(len(self.arrival_s), _NEVER)
        m = s.max_replicas
        self.pods = Pods(
            np.zeros(m), np.zeros(m), np.full(m, _NONE), np.zeros(m), np.full(m, _NONE), np.zeros(m), np.zeros(m), np.zeros(m),
            np.full(m, _NONE), np.full(m, _NONE),
        )  # fmt: skip
        self._head = self._arrived = 0
        self._following = np.full(len(self.arrival_s) if s.per_pod_queues else 0, _NONE)
        self._draw = load.shape.rng("pods").random(len(self._following))
        self._completed = 0.0
        self._tally = WindowTally(np.zeros(2), np.zeros(BUCKETS))
        self._removed_s = 0.0
        """CPU seconds of the window by pods that were removed in it, as long as they were there."""
        self.cpu_m = 0.0

    def start_pod(self, pod: int, ready_s: float) -> None:
        """Reset a pod that was not there, ready from this time on."""
        p = self.pods
        p.ready_s[pod] = p.free_s[pod] = ready_s
        p.request[pod] = p.first[pod] = p.last[pod] = p.period[pod] = _NONE

    def stop_pod(self, pod: int, now_s: float) -> None:
        """Stop a pod: it finishes what it has, its own queue too, as a terminating pod does within its grace period."""
        s = self._s
        until_s = now_s + s.time_out_s
        self._removed_s += float(self.pods.used_s[pod])
        if s.per_pod_queues:
            serve_own(
                self.pods, self._tally, self._following, self.arrival_s, self.cpu_s, self.finish_s, pod, self.cpu_m, self.useful_m,
                now_s, until_s, s.target_s, s.time_out_s,
            )  # fmt: skip
        elif self.pods.request[pod] != _NONE:
            _go_on(
                self.pods, self._tally, self.arrival_s, self.finish_s, pod, now_s, until_s, self.cpu_m, self.useful_m,
                s.target_s, s.time_out_s,
            )  # fmt: skip
        self.pods.request[pod] = self.pods.first[pod] = _NONE
        self.pods.used_s[pod] = self.pods.stopped[pod] = 0.0
        self.pods.ready_s[pod] = _NEVER

    def serve(self, pods: int, cpu_m: float, begin_s: float, until_s: float) -> None:
        """A part of a window."""
        s, p, tally = self._s, self.pods, self._tally
        self.cpu_m = cpu_m
        if s.per_pod_queues:
            self._head = give_to_pods(p, self._following, self.arrival_s, self._draw, self._head, pods, until_s)
            for k in range(pods):
                serve_own(
                    p, tally, self._following, self.arrival_s, self.cpu_s, self.finish_s, k, cpu_m, self.useful_m, begin_s, until_s,
                    s.target_s, s.time_out_s,
                )  # fmt: skip
        else:
            self._head = serve_central(
                p, tally, self.arrival_s, self.cpu_s, self.finish_s, self._head, pods, cpu_m, self.useful_m, begin_s, until_s,
                s.target_s, s.time_out_s,
            )  # fmt: skip

    def glance(self, now_s: float) -> tuple[float, float]:
        """Arrived in the window so far, and in flight."""
        arrived = int(np.searchsorted(self.arrival_s, now_s))
        return float(arrived - self._arrived), arrived - self._completed - float(self._tally.completed[0])

    def read(self, pods: int, cpu_m: float, begin_s: float, until_s: float) -> tuple[float, ...]:
        """The window that has ended: arrived, completed, late, p90, in flight, used CPU seconds, throttled share."""
        p, tally = self.pods, self._tally
        arrived = int(np.searchsorted(self.arrival_s, until_s))
        came, self._arrived = arrived - self._arrived, arrived
        completed, late = tally.completed
        self._completed += completed
        periods = sum(max(until_s - max(begin_s, float(p.ready_s[k])), 0.0) for k in range(pods)) / PERIOD_S
        throttled = float(p.stopped[:pods].sum()) / max(periods, 1.0) if cpu_m < self.useful_m else 0.0
        used_s = self._removed_s + float(p.used_s[:pods].sum())
        p.used_s[:] = p.stopped[:] = self._removed_s = 0.0
        self._tally = WindowTally(np.zeros(2), np.zeros(BUCKETS))
        return came, completed, late, _p90(tally.latency), arrived - self._completed, used_s, min(throttled, 1.0)


def _p90(latency: FloatArray) -> float:
    """Upper edge of the bucket; NaN of nothing."""
    total = latency.sum()
    if total == 0:
        return float("nan")
    bucket = int(np.argmax(np.cumsum(latency) >= 0.9 * total))
    return float(_SHORTEST_S * (_LONGEST_S / _SHORTEST_S) ** ((bucket + 1) / (BUCKETS - 1)))


class RequestServices:
    """The exact simulator as a `plant.Plant`."""

    def __init__(self, loads: Sequence[Load], scenario: ServiceScenario) -> None:
        self._services = [_Service(load, scenario) for load in loads]
        self._window, self._passed, self._s = 0, 0, scenario
        self._sizes: list[tuple[int, float]] = [(0, 0.0)] * len(loads)

    @property
    def _now_s(self) -> float:
        """A whole window's end is counted in windows: sums of periods would be off in the last digit."""
        whole, part = divmod(self._passed, self._s.periods)
        return (self._window + whole) * self._s.window_s + part * PERIOD_S

    def start_pod(self, service: int, pod: int, ready_s: float) -> None:
        """A new pod is ready from this time on; implements `Plant.start_pod`."""
        self._services[service].start_pod(pod, ready_s)

    def stop_pods(self, service: int, left: int) -> None:
        """The newest, one after another."""
        for pod in range(left, self._s.max_replicas):
            if self._services[service].pods.ready_s[pod] < _NEVER:
                self._services[service].stop_pod(pod, self._now_s)

    def pass_time(self, replicas: IntArray, cpu_m: FloatArray, periods: int) -> None:
        """Simulate a part of a window; implements `Plant.pass_time`."""
        begin_s = self._now_s
        self._passed += periods
        self._sizes = [(int(n), float(m)) for n, m in zip(replicas, cpu_m, strict=True)]
        for service, (pods, size_m) in zip(self._services, self._sizes, strict=True):
            service.serve(pods, size_m, begin_s, self._now_s)

    def glance(self) -> tuple[FloatArray, FloatArray]:
        """Arrived in the window so far, and in flight; implements `Plant.glance`."""
        arrived, in_flight = np.array([service.glance(self._now_s) for service in self._services]).T
        return arrived, in_flight

    def advance(self, replicas: IntArray, cpu_m: FloatArray) -> PlantReadings:
        """Simulate one window with these sizes."""
        self.pass_time(replicas, cpu_m, self._s.periods)
        return self.read()

    def read(self) -> PlantReadings:
        """What was measured over the window; implements `Plant.read`."""
        begin_s = self._window * self._s.window_s
        until_s = begin_s + self._s.window_s
        self._window, self._passed = self._window + 1, 0
        rows = [service.read(pods, m, begin_s, until_s) for service, (pods, m) in zip(self._services, self._sizes, strict=True)]
        came, completed, late, p90_s, in_flight, used_s, throttled = np.array(rows).T
        return PlantReadings(came, completed, late, p90_s, in_flight, 1000 * used_s / self._s.window_s, throttled)

    def outcome(self) -> RequestCounts:
        """Arrived, late and never served requests, counted in the window in which they arrived."""
        arrived, late, never = (np.zeros((len(self._services), self._window)) for _ in range(3))
        for i, service in enumerate(self._services):
            window = (service.arrival_s / self._s.window_s).astype(np.int64)
            over = service.finish_s - service.arrival_s > self._s.target_s
            for row, weights in ((arrived, None), (late, over), (never, np.isinf(service.finish_s))):
                row[i] = np.bincount(window, weights=weights, minlength=self._window)[: self._window]
        return RequestCounts(arrived, late, never)
