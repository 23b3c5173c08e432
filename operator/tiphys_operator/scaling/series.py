"""Raw samples of counters and gauges, and what happened in a window of them. No rates over long windows: those react late."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RARE = 1.5
"""Samples further apart than so many windows are rare."""
_BORN_SLACK_S = 2.0
_LARGEST = 1e15
"""The largest value believed: more requests or seconds were never counted, and their sums would leave what a status can hold."""
_TOLD, _TOLD_CHARS = 3, 120


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a range."""

    labels: Mapping[str, str]
    times_s: tuple[float, ...]
    """Times of the samples, rising; never empty."""
    values: tuple[float, ...]

    @property
    def usable(self) -> bool:
        """Whether the values can be those of a counter or a gauge of requests."""
        return all(0 <= v <= _LARGEST for v in self.values)

    def at(self, time_s: float) -> float | None:
        """The last value at that time; None before the first."""
        index = bisect_right(self.times_s, time_s)
        return self.values[index - 1] if index else None

    def increase(self, begin_s: float, end_s: float, born_s: float | None = None) -> float | None:
        """What a counter grew by, restarts of its process included; None if it has no sample in the window.

        Without a sample at its begin the first one is where it starts, unless the process was born in the window: then it started at 0.
        """
        first, last = bisect_right(self.times_s, begin_s), bisect_right(self.times_s, end_s)
        if first == last:
            return None
        inside = self.values[first:last]
        born_inside = born_s is not None and born_s >= begin_s - _BORN_SLACK_S
        before = self.values[first - 1] if first else 0.0 if born_inside else inside[0]
        total = 0.0
        for value in inside:
            total += value - before if value >= before else value
            before = value
        return total

    def spent(self, begin_s: float, end_s: float, born_s: float | None = None) -> float | None:
        """What grew in a window, of counters that may be read more rarely than windows end: then their pace counts.

        A kubelet looks at its containers every 10 to 15 s; taken as the window's own, what they used since would count two or three times.
        """
        grown = self.increase(begin_s, end_s, born_s)
        first, last = bisect_right(self.times_s, begin_s), bisect_right(self.times_s, end_s)
        if grown is None or not first:
            return grown
        span_s, length_s = self.times_s[last - 1] - self.times_s[first - 1], end_s - begin_s
        return grown if span_s <= _RARE * length_s else grown * length_s / span_s


def newest_s(series: Sequence[Series]) -> float | None:
    """Time of the newest sample."""
    return max((s.times_s[-1] for s in series), default=None)


def warnings_of(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """What a server says of an answer that may be only a part of the whole: Prometheus, Thanos and Mimir; VictoriaMetrics."""
    said = [
        f"Prometheus says: {' '.join(str(text).split())[:_TOLD_CHARS]}" for key in ("warnings", "infos") for text in answer.get(key) or ()
    ]
    return (*said[:_TOLD], *(["Prometheus says: the answer is partial"] if answer.get("isPartial") is True else []))


def parse_matrix(answer: Mapping[str, Any]) -> list[Series]:
    """The series in an answer of /api/v1/query with a range selector; raises KeyError, TypeError or ValueError for anything else."""
    data = answer["data"]
    if answer["status"] != "success" or data["resultType"] != "matrix":
        raise ValueError(f"status {answer['status']!r}, type {data.get('resultType')!r}")
    return [
        Series(dict(r["metric"]), tuple(float(t) for t, _ in r["values"]), tuple(float(v) for _, v in r["values"]))
        for r in data["result"]
        if r["values"]
    ]
