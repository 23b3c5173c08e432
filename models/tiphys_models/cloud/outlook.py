"""What a host is expected to do with given tasks, to completion: processor sharing in closed form.

Looking to completion rather than at one interval matters: within an interval, tasks that have not ended look free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiphys_models.cloud.hosts import THREADS, HostType, power_w
from tiphys_models.cloud.score import Outcome

_SOFTNESS = 0.1
"""Demands are expectations: a deadline is missed with probability sigmoid((response - deadline) / (0.1 deadline))."""


def expected_outcome(kind: HostType, work_core_s: Sequence[float], age_s: Sequence[float], deadline_s: Sequence[float],
                     interval_s: float, start_s: float = 0.0) -> Outcome:  # fmt: skip
    """Bill, energy, responses and violations of one host from now on, until all its tasks have ended and nothing follows.

    Ages count in responses in full: differences between two outlooks of a host are what a choice changes.
    """
    if not work_core_s:
        return Outcome()
    ends, busy = finish_times(kind.cores, work_core_s, interval_s, start_s)
    usd = len(busy) * interval_s * kind.usd_per_hour / 3600.0
    joules = sum(power_w(kind.power_w, used / (kind.cores * interval_s)) for used in busy) * interval_s
    responses = [age + end for age, end in zip(age_s, ends, strict=True)]
    late = sum(violation(response, limit) for response, limit in zip(responses, deadline_s, strict=True))
    return Outcome(usd, joules, sum(responses), late, len(responses))


def finish_times(cores: float, work_core_s: Sequence[float], interval_s: float, start_s: float = 0.0) -> tuple[list[float], list[float]]:
    """(end of every task, CPU seconds of the host in every interval until the last end), all starting together."""
    order = sorted(range(len(work_core_s)), key=work_core_s.__getitem__)
    ends = [0.0] * len(order)
    busy: list[float] = []
    now, done = start_s, 0.0
    for position, task in enumerate(order):
        present = len(order) - position
        rate = min(THREADS, cores / present)
        end = now + (work_core_s[task] - done) / rate
        _spread(busy, now, end, rate * present, interval_s)
        now, done = end, work_core_s[task]
        ends[task] = end
    return ends, busy


def _spread(busy: list[float], start_s: float, end_s: float, used_cores: float, interval_s: float) -> None:
    """Add a stretch of constant use to the intervals it covers."""
    while start_s < end_s:
        index = int(start_s / interval_s + 1e-9)
        edge = min(end_s, (index + 1) * interval_s)
        while len(busy) <= index:
            busy.append(0.0)
        busy[index] += (edge - start_s) * used_cores
        start_s = edge if edge > start_s else end_s


def violation(response_s: float, deadline_s: float) -> float:
    """Probability-like: 0.5 at the deadline."""
    z = (response_s - deadline_s) / (_SOFTNESS * deadline_s)
    return 1.0 / (1.0 + math.exp(-max(min(z, 50.0), -50.0)))
