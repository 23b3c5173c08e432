"""From raw samples to windows: what arrived, how much of it was late, what CPU it took. Missing is never zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tiphys_models.api.reasons import ScalingReason
from tiphys_models.scaling.state import Window
from tiphys_operator.scaling.series import Series, newest_s

_EDGE_TOLERANCE = 1e-9
_LEAST_REQUESTS = 20
"""Fewer say nothing about what CPU a request takes: idle work would be charged to them."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Answers of Prometheus, raw."""

    buckets: tuple[Series, ...]
    in_flight: tuple[Series, ...] = ()
    used: tuple[Series, ...] = ()
    """container_cpu_usage_seconds_total."""
    throttled: tuple[Series, ...] = ()
    periods: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """How to read them."""

    target_s: float
    percentile: float
    length_s: float
    per_second: float
    pod_label: str
    born: Mapping[str, float | None] = field(default_factory=dict)
    """When each running pod started, by name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Windows, or why there are none."""

    windows: tuple[Window, ...] = ()
    """Oldest first."""
    problem: ScalingReason | None = None
    message: str = ""
    silent: tuple[str, ...] = ()
    """Pods that should have delivered samples and did not."""


def measure(readings: Readings, scope: Scope, count: int) -> Measured:
    """The last `count` windows, the newest ending with the newest sample."""
    if not readings.buckets:
        return Measured(problem=ScalingReason.SERIES_MISSING, message="Prometheus has no series of this histogram for these pods")
    every = (*readings.buckets, *readings.in_flight, *readings.used, *readings.throttled, *readings.periods)
    if bad := next((s for s in every if not s.usable), None):
        return Measured(problem=ScalingReason.SAMPLES_UNUSABLE, message=f"{bad.labels.get('__name__', 'a series')} holds what is no count")
    edges = sorted({_edge(s) for s in readings.buckets})
    wanted = scope.target_s * scope.per_second
    edge = next((e for e in edges if math.isfinite(e) and abs(e - wanted) <= _EDGE_TOLERANCE * wanted), None)
    if edge is None or not math.isinf(edges[-1]):
        named = ", ".join(f"{e:g}" for e in edges[:12])
        return Measured(problem=ScalingReason.NO_BUCKET_EDGE, message=f"{wanted:g} is no edge of the histogram: it has {named}")
    end_s = newest_s(readings.buckets) or 0.0
    found = [_window(readings, scope, edge, edges, end_s - back * scope.length_s) for back in reversed(range(count))]
    windows = tuple(w for w in found if w is not None)
    heard = {s.labels.get(scope.pod_label, "") for s in readings.buckets if s.times_s[-1] > end_s - scope.length_s}
    silent = sorted(
        name for name, born_s in scope.born.items() if scope.pod_label and name not in heard and (born_s or 0.0) < end_s - scope.length_s
    )
    return Measured(windows, silent=tuple(silent))


def request_cpu_ms(windows: Sequence[Window], percentile: float, known_ms: float | None) -> float | None:
    """CPU milliseconds that a request takes; None if nobody knows yet.

    From windows that kept the objective. Overloaded ones count requests that were given up and took no CPU, so they only say what it takes
    at least: enough to grow from, window by window, where nothing better is known.
    """
    kept = [w for w in windows if w.late is not None and w.late <= 1 - percentile + _EDGE_TOLERANCE]
    if (found := _cpu_ms(kept)) is not None:
        return found
    return max((ms for ms in (known_ms, _cpu_ms(windows)) if ms is not None), default=None)


def _cpu_ms(windows: Sequence[Window]) -> float | None:
    known = [w for w in windows if w.used_cpu_m is not None and w.completed > 0]
    requests = sum(w.completed for w in known)
    if requests < _LEAST_REQUESTS:
        return None
    # millicores times seconds are milliseconds of one core
    return sum((w.used_cpu_m or 0.0) * w.length_s for w in known) / requests


def _window(readings: Readings, scope: Scope, edge: float, edges: Sequence[float], end_s: float) -> Window | None:
    begin_s = end_s - scope.length_s

    def grown(series: Iterable[Series], label: str = scope.pod_label) -> float | None:
        found = [s.increase(begin_s, end_s, scope.born.get(s.labels.get(label, ""))) for s in series]
        return math.fsum(v for v in found if v is not None) if any(v is not None for v in found) else None

    by_edge = {e: grown(s for s in readings.buckets if _edge(s) == e) for e in edges}
    completed = by_edge[math.inf]
    if completed is None:
        return None
    good = min(by_edge[edge] or 0.0, completed)
    # a pod that is gone has nothing in flight, whatever its last sample said
    flying = [s for s in readings.in_flight if not scope.pod_label or s.labels.get(scope.pod_label) in scope.born]
    waiting, before = _sum_at(flying, end_s), _sum_at(flying, begin_s)
    arrived = max(completed + (waiting - before if waiting is not None and before is not None else 0.0), 0.0)
    late: float | None = 1.0 - good / completed if completed > 0 else 1.0 if arrived > 0 or (waiting or 0.0) >= 1 else None
    periods = grown(readings.periods, "pod")
    stopped = grown(readings.throttled, "pod")
    return Window(
        at_s=end_s,
        length_s=scope.length_s,
        arrived=arrived,
        completed=completed,
        late=late,
        p90_s=_quantile(by_edge, completed, scope.percentile, scope.per_second),
        in_flight=waiting,
        used_cpu_m=_used_cpu_m(readings.used, scope, begin_s, end_s),
        throttled=min(stopped / periods, 1.0) if periods and stopped is not None else None,
    )


def _used_cpu_m(series: Iterable[Series], scope: Scope, begin_s: float, end_s: float) -> float | None:
    """Millicores of all pods. Kubelets tell CPU at /metrics/cadvisor and /metrics/resource: where both are scraped, a pod counts once."""
    told: dict[str, dict[tuple[str, str], float]] = {}
    for s in series:
        pod, job = s.labels.get("pod", ""), (s.labels.get("job", ""), s.labels.get("metrics_path", ""))
        if (core_s := s.spent(begin_s, end_s, scope.born.get(pod))) is not None:
            jobs = told.setdefault(pod, {})
            jobs[job] = jobs.get(job, 0.0) + core_s
    return 1000 * math.fsum(max(jobs.values()) for jobs in told.values()) / (end_s - begin_s) if told else None


def _edge(series: Series) -> float:
    try:
        return float(series.labels.get("le", "nan"))
    except ValueError:
        return math.nan


def _sum_at(series: Sequence[Series], time_s: float) -> float | None:
    found = [value for s in series if (value := s.at(time_s)) is not None]
    return math.fsum(found) if found else None


def _quantile(by_edge: Mapping[float, float | None], completed: float, share: float, per_second: float) -> float | None:
    """Upper edge of the bucket that holds it; of the open bucket, the last edge."""
    if completed <= 0:
        return None
    finite = sorted(e for e in by_edge if math.isfinite(e))
    held = next((e for e in finite if (by_edge[e] or 0.0) >= share * completed - _EDGE_TOLERANCE), finite[-1])
    return held / per_second
