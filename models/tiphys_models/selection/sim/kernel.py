"""One interval of the cloud, compiled: processor sharing within hosts, bills and energy per host.

Every task runs THREADS threads, so hosts share their cores equally up to that cap; between two events of a host (a start, an end)
rates are constant, which makes the interval exact.
"""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.selection.cloud.hosts import THREADS

_NEVER = 1e300
_DONE = 1e-9


@compiled
def share_hosts(
    t0: float, t1: float, host: IntArray, remaining: FloatArray, start_s: FloatArray, cores: FloatArray,
    used: FloatArray, end_s: FloatArray, busy: FloatArray,
) -> None:  # fmt: skip
    """Let tasks work from t0 to t1: `remaining` shrinks; `used` (per task) and `busy` (per host) get CPU seconds, `end_s` ends."""
    order = np.argsort(host, kind="mergesort")
    first = 0
    while first < len(order):
        last = first
        h = host[order[first]]
        while last < len(order) and host[order[last]] == h:
            last += 1
        t = t0
        while t < t1:
            present = 0
            least = _NEVER
            starts = t1
            for k in range(first, last):
                i = order[k]
                if remaining[i] <= 0.0:
                    continue
                if start_s[i] > t:
                    starts = min(starts, start_s[i])
                else:
                    present += 1
                    least = min(least, remaining[i])
            if present == 0:
                t = starts
                continue
            rate = min(THREADS, cores[h] / present)
            ends = t + least / rate
            until = min(starts, ends)
            work = least if ends <= starts else (until - t) * rate
            for k in range(first, last):
                i = order[k]
                if remaining[i] > 0.0 and start_s[i] <= t:
                    remaining[i] -= work
                    used[i] += work
                    if remaining[i] <= _DONE:
                        remaining[i] = 0.0
                        end_s[i] = until
            busy[h] += work * present
            t = until
        first = last


@compiled
def bill_hosts(
    dt: float, busy: FloatArray, has_tasks: BoolArray, resuming: BoolArray, idle_left: IntArray, linger: int,
    cores: FloatArray, usd_per_s: FloatArray, power_w: FloatArray, usd: FloatArray, joules: FloatArray,
) -> None:  # fmt: skip
    """What every host costs for one interval; a host whose CPU was used, that resumed or lingered is on for all of it."""
    steps = power_w.shape[1] - 1
    for h in range(len(busy)):
        if busy[h] > 0.0 or resuming[h] or idle_left[h] > 0:
            usd[h] = usd_per_s[h] * dt
            place = min(busy[h] / (cores[h] * dt), 1.0) * steps
            below = min(int(place), steps - 1)
            joules[h] = (power_w[h, below] + (power_w[h, below + 1] - power_w[h, below]) * (place - below)) * dt
        if busy[h] > 0.0:
            resuming[h] = False
            idle_left[h] = 0 if has_tasks[h] else linger
        elif idle_left[h] > 0 and not has_tasks[h]:
            idle_left[h] -= 1


@compiled
def drain_hosts(
    t0: float, dt: float, host: IntArray, remaining: FloatArray, start_s: FloatArray, resuming: BoolArray, idle_left: IntArray, linger: int,
    cores: FloatArray, usd_per_s: FloatArray, power_w: FloatArray, end_s: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Run on without arrivals until every task has ended and no host lingers: (USD, joules); arguments are consumed."""
    usd_total = 0.0
    joules_total = 0.0
    t = t0
    while True:
        open_tasks = False
        for i in range(len(host)):
            open_tasks = open_tasks or remaining[i] > 0.0
        if not open_tasks and not np.any(idle_left > 0):
            return usd_total, joules_total
        busy = np.zeros(len(cores))
        usd = np.zeros(len(cores))
        joules = np.zeros(len(cores))
        used = np.zeros(len(host))
        share_hosts(t, t + dt, host, remaining, start_s, cores, used, end_s, busy)
        has_tasks = np.zeros(len(cores), np.bool_)
        for i in range(len(host)):
            if remaining[i] > 0.0:
                has_tasks[host[i]] = True
        bill_hosts(dt, busy, has_tasks, resuming, idle_left, linger, cores, usd_per_s, power_w, usd, joules)
        usd_total += usd.sum()
        joules_total += joules.sum()
        t += dt
