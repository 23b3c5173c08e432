"""What a host is expected to do with given tasks, to completion: processor sharing in closed form.

Looking to completion rather than at one interval matters: within an interval, tasks that have not ended look free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tiphys_models.selection.cloud.hosts import THREADS, HostType, power_w
from tiphys_models.selection.cloud.score import Outcome

_SAME = 1e-9
"""Seconds: an end this near to an interval's edge belongs to it."""
_STEPPED = 512
"""Intervals that are gone through one by one before an end; beyond, all that are alike are one stretch. A host of a milli-core would be
gone through for billions otherwise, each with a number of its own."""
_SOFTNESS = 0.1
"""Demands are expectations: a deadline is missed with probability sigmoid((response - deadline) / (0.1 deadline))."""


def expected_outcome(kind: HostType, work_core_s: Sequence[float], age_s: Sequence[float], deadline_s: Sequence[float],
                     interval_s: float, start_s: float = 0.0) -> Outcome:  # fmt: skip
    """Bill, energy, responses and violations of one host from now on, until all its tasks have ended and nothing follows.

    Ages count in responses in full: differences between two outlooks of a host are what a choice changes.
    """
    if not work_core_s:
        return Outcome()
    ends, busy, alike = _played(kind.cores, work_core_s, interval_s, start_s)
    capacity, joules, intervals = kind.cores * interval_s, 0.0, len(busy)
    for used in busy:
        joules += power_w(kind.power_w, used / capacity)
    for used, count in alike:
        joules += power_w(kind.power_w, used / capacity) * count
        intervals += count
    response, late = 0.0, 0.0
    for task, end in enumerate(ends):
        mine = age_s[task] + end
        response += mine
        late += violation(mine, deadline_s[task])
    usd = intervals * interval_s * kind.usd_per_hour / 3600.0
    return Outcome(usd, joules * interval_s, response, late, len(ends))


def finish_times(cores: float, work_core_s: Sequence[float], interval_s: float, start_s: float = 0.0) -> tuple[list[float], list[float]]:
    """(end of every task, CPU seconds of the host in every interval until the last end), all starting together.

    Where an end is further away than anybody looks, the intervals before it that are alike are left out.
    """
    ends, busy, _ = _played(cores, work_core_s, interval_s, start_s)
    return ends, busy


def _played(
    cores: float, work_core_s: Sequence[float], interval_s: float, start_s: float
) -> tuple[list[float], list[float], list[tuple[float, int]]]:
    """Ends, CPU seconds of intervals, and (CPU seconds, how many) of stretches of intervals that are alike."""
    count = len(work_core_s)
    order = sorted(range(count), key=work_core_s.__getitem__) if count > 1 else (0,)
    ends = [0.0] * count
    busy, alike = [0.0], list[tuple[float, int]]()
    now, done, edge = start_s, 0.0, interval_s
    for task in order:
        rate = cores / count
        if rate > THREADS:
            rate = THREADS
        end = now + (work_core_s[task] - done) / rate
        if end - edge > _STEPPED * interval_s:
            now, edge = _far(busy, alike, now, edge, end, interval_s, rate * count)
        while end > edge + _SAME or (now > edge - _SAME and end > now):  # into the next interval
            if edge > now:
                busy[-1] += (edge - now) * rate * count
                now = edge
            busy.append(0.0)
            edge += interval_s
        busy[-1] += (end - now) * rate * count
        now, done, count = end, work_core_s[task], count - 1
        ends[task] = end
    return ends, busy, alike


def _far(
    busy: list[float], alike: list[tuple[float, int]], now: float, edge: float, end: float, interval_s: float, rate: float
) -> tuple[float, float]:
    """Goes to shortly before a far end in one stretch; the new time and the edge after it."""
    if edge > now:
        busy[-1] += (edge - now) * rate
        now = edge
    count = int((end - now) / interval_s) - 1
    alike.append((interval_s * rate, count))
    busy.append(0.0)
    return now + count * interval_s, now + (count + 1) * interval_s


def violation(response_s: float, deadline_s: float) -> float:
    """Probability-like: 0.5 at the deadline."""
    z = (response_s - deadline_s) / (_SOFTNESS * deadline_s)
    return 1.0 / (1.0 + math.exp(-max(min(z, 50.0), -50.0)))
