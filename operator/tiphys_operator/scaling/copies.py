"""One counter, scraped twice: by two jobs, through two ports, by two replicas of Prometheus. It counts once. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise

from tiphys_operator.scaling.series import Series

SCRAPE_LABELS = (
    "job", "metrics_path", "instance", "endpoint", "service", "prometheus", "prometheus_replica", "replica", "__replica__",
    "receive_replica",
)  # fmt: skip
"""What a scrape adds, and what tells two scrapes of one target apart."""
_POD_LABELS = ("pod", "kubernetes_pod_name", "pod_name")
_CLOCKS_S = 2.0
"""Two replicas of Prometheus may write down the same moment so far apart."""
_ROUNDING = 1e-6


def told_once(series: Sequence[Series], since_s: float) -> tuple[tuple[Series, ...], str]:
    """The series without copies: of several copies that which has grown most; and in words, series that look like copies but differ.

    Those that differ are all kept: too much is measured rather than too little.
    """
    kept, unlike = list[Series](), set[str]()
    for group in _groups(series):
        alike = len(group) == 1 or all(copies(a, b, since_s) for a, b in combinations(group, 2))
        kept += [max(group, key=lambda s: (s.times_s[-1], s.values[-1]))] if alike else group
        if not alike:
            unlike.add(_told(group))
    return tuple(kept), min(unlike, default="")


def largest(gauges: Iterable[Series]) -> tuple[Series, ...]:
    """One gauge of each group of copies: the one with the largest last value."""
    return tuple(max(group, key=lambda s: s.values[-1]) for group in _groups(gauges))


def _groups(series: Iterable[Series]) -> Iterable[list[Series]]:
    by_labels: dict[tuple[tuple[str, str], ...], list[Series]] = {}
    for s in series:
        by_labels.setdefault(_own(s), []).append(s)
    return by_labels.values()


def copies(one: Series, other: Series, since_s: float) -> bool:
    """Whether both are samples of the same counter: then each value lies between the neighbours that the other has in time."""
    return _between(one, other, since_s) and _between(other, one, since_s)


def _between(one: Series, other: Series, since_s: float) -> bool:
    for index in range(bisect_left(one.times_s, since_s), len(one.times_s)):
        time_s, value = one.times_s[index], one.values[index]
        first, last = bisect_right(other.times_s, time_s - _CLOCKS_S) - 1, bisect_left(other.times_s, time_s + _CLOCKS_S)
        if first < 0 or _falls(other, other.times_s[first], time_s + _CLOCKS_S) or _falls(one, other.times_s[first], time_s):
            continue  # before the other began, or the process restarted in between
        low, high = other.values[first], other.values[last] if last < len(other.values) else math.inf
        slack = _ROUNDING * max(abs(value), 1.0)
        if not low - slack <= value <= high + slack:
            return False
    return True


def _falls(series: Series, begin_s: float, end_s: float) -> bool:
    """Whether some value is smaller than the one before it, from the last sample at the begin to the first after the end."""
    first, last = bisect_right(series.times_s, begin_s) - 1, bisect_left(series.times_s, end_s)
    values = series.values[max(first, 0) : last + 1]
    return any(after < before for before, after in pairwise(values))


def _own(series: Series) -> tuple[tuple[str, str], ...]:
    """Labels that are not the scrape's; where no label names a pod, its address tells it."""
    named = any(series.labels.get(label) for label in _POD_LABELS)
    kept = {k: v for k, v in series.labels.items() if k not in SCRAPE_LABELS}
    if not named and (instance := series.labels.get("instance")):
        kept["instance"] = instance.rpartition(":")[0] or instance
    return tuple(sorted(kept.items()))


def _told(group: Iterable[Series]) -> str:
    every = [s.labels for s in group]
    differ = [label for label in SCRAPE_LABELS if len({labels.get(label, "") for labels in every}) > 1]
    who = next((every[0][label] for label in (*_POD_LABELS, "instance") if every[0].get(label)), "a series")
    return f"{who} is told more than once (by {', '.join(differ) or 'no label'})"
