"""Windows made from raw samples: what arrived, how much of it was late, what CPU it took. Missing is never zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.scaling.state import Window
from tiphys_operator.scaling.copies import SCRAPE_LABELS, largest, told_once
from tiphys_operator.scaling.presence import Presence, Running, heard, named, presence, reaches, reporter, silent_pods
from tiphys_operator.scaling.series import Series, newest_s

_EDGE_TOLERANCE = 1e-9
_KUBELET_S = 45.0
"""A kubelet looks at its containers every 10 to 15 s, and is scraped as rarely."""
_LEAST_REQUESTS = 20
"""Fewer say nothing about what CPU a request takes: idle work would be charged to them."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Answers of Prometheus, raw."""

    buckets: tuple[Series, ...]
    in_flight: tuple[Series, ...] = ()
    used: tuple[Series, ...] = ()
    """The series of `container_cpu_usage_seconds_total`."""
    throttled: tuple[Series, ...] = ()
    periods: tuple[Series, ...] = ()
    up: tuple[Series, ...] = ()
    """Whether scrapes of the pods succeed."""
    warnings: tuple[str, ...] = ()
    """What Prometheus says of its own answers: a store that did not answer, a result that was cut."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The facts that turn readings into windows: the objective, the window's length, and the pods."""

    target_s: float
    percentile: float
    length_s: float
    per_second: float
    pod_label: str
    born: Mapping[str, float | None] = field(default_factory=dict)
    """When each running pod started, by name."""
    running: Running | None = None
    """More facts about the running pods than `born`; None: there are no others."""

    @property
    def pods(self) -> Running:
        """All that is known of them."""
        return self.running or Running(self.born, known=frozenset(self.born))


@dataclass(frozen=True, slots=True)
class Measured:
    """Windows, or why there are none."""

    windows: tuple[Window, ...] = ()
    """The windows, oldest first."""
    problem: ScalingReason | None = None
    message: str = ""
    silent: tuple[str, ...] = ()
    """Pods that should have delivered samples and did not."""
    doubts: tuple[str, ...] = ()
    """What else says that the newest window is not the whole of it."""
    presence: Presence = field(default_factory=Presence)
    """What this window was told by which pods, to be compared with the next one."""

    @property
    def partial(self) -> tuple[str, ...]:
        """All that is missing; while there is something, nothing shrinks."""
        return (f"no samples of {named(self.silent)}", *self.doubts) if self.silent else self.doubts


def measure(readings: Readings, scope: Scope, count: int, former: Presence | None = None) -> Measured:
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
        first = ", ".join(f"{e:g}" for e in edges[:12])
        return Measured(problem=ScalingReason.NO_BUCKET_EDGE, message=f"{wanted:g} is no edge of the histogram: it has {first}")
    end_s = newest_s(readings.buckets) or 0.0
    begin_s = end_s - scope.length_s
    former = former or Presence()
    buckets, twice = told_once(readings.buckets, begin_s)
    flying = readings.in_flight if twice else largest(readings.in_flight)
    once, parts = replace(readings, in_flight=flying), _parts(buckets, scope)
    found = [_window(once, parts, scope, edge, end_s - back * scope.length_s) for back in reversed(range(count))]
    windows = tuple(w for w in found if w is not None)
    told = heard(buckets, scope.pods, scope.pod_label, begin_s, end_s)
    silent = silent_pods(told, former, scope.pods, buckets, readings.up, scope.pod_label, begin_s, end_s)
    now, missing = presence(told, former, scope.pods)
    uncharged = _without_cpu(readings.used, scope, begin_s, end_s)
    if uncharged and windows:
        windows = (*windows[:-1], replace(windows[-1], used_cpu_m=None))
    unlike = f"{twice}, and not alike: spec.objective.metrics.matchers can choose one" if twice else ""
    doubts = (*readings.warnings, missing, _cut_off(buckets, scope, edge, end_s), uncharged, unlike)
    return Measured(windows, silent=silent, doubts=tuple(filter(None, doubts)), presence=now)


def believed(window: Window, former_rate: float | None, max_fall: float) -> Window:
    """The window with at most this share of the last complete window's load gone: a greater fall counts once a second window tells it."""
    least = 0.0 if former_rate is None else former_rate * (1 - max_fall) * window.length_s
    return window if window.arrived >= least else replace(window, arrived=least)


def _cut_off(buckets: Sequence[Series], scope: Scope, edge: float, end_s: float) -> str:
    """Whether some series of a reporter end while others go on: a part of the answer is missing."""
    needed: dict[tuple[str, tuple[tuple[str, str], ...]], set[float]] = {}
    alive: set[str] = set()
    for s in buckets:
        if _edge(s) not in (edge, math.inf):
            continue
        who = reporter(s, scope.pods, scope.pod_label)
        found = needed.setdefault((who, tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))), set())
        if reaches(s, end_s, scope.length_s):
            found.add(_edge(s))
            alive.add(who)
    cut = {who for (who, _), found in needed.items() if who in alive and found != {edge, math.inf}}
    return f"some series of {named(cut)}" if cut else ""


def _without_cpu(used: Sequence[Series], scope: Scope, begin_s: float, end_s: float) -> str:
    """Names of pods whose CPU is not reported while that of others is."""
    if not used:
        return ""
    told = {s.labels.get("pod", "") for s in used if s.times_s[-1] > end_s - max(scope.length_s, _KUBELET_S)}
    missing = {name for name, born_s in scope.born.items() if (born_s or 0.0) < begin_s - _KUBELET_S} - told
    return f"no CPU of {named(missing)}" if missing else ""


def request_cpu_ms(windows: Sequence[Window], percentile: float, known_ms: float | None) -> float | None:
    """CPU milliseconds that a request takes, where nothing was learned yet (`learning`); None if nobody knows.

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


_Parts = Mapping[float, Sequence[tuple[Series, float | None]]]
"""Counters by edge, each with when its process was born."""


def _parts(buckets: Iterable[Series], scope: Scope) -> _Parts:
    found: dict[float, list[tuple[Series, float | None]]] = {}
    for s in buckets:
        found.setdefault(_edge(s), []).append((s, scope.born.get(reporter(s, scope.pods, scope.pod_label))))
    return found


def _grown(counters: Iterable[tuple[Series, float | None]], begin_s: float, end_s: float) -> float | None:
    found = [s.increase(begin_s, end_s, born_s) for s, born_s in counters]
    return math.fsum(v for v in found if v is not None) if any(v is not None for v in found) else None


def _window(readings: Readings, parts: _Parts, scope: Scope, edge: float, end_s: float) -> Window | None:
    begin_s = end_s - scope.length_s
    by_edge = {e: _grown(counters, begin_s, end_s) for e, counters in parts.items()}
    completed = by_edge[math.inf]
    if completed is None:
        return None
    good = min(by_edge[edge] or 0.0, completed)
    # a pod that is gone has nothing in flight, whatever its last sample said
    tellers = ((s, reporter(s, scope.pods, scope.pod_label)) for s in readings.in_flight)
    flying = [s for s, who in tellers if who in scope.born or not (scope.pod_label or who in scope.pods.known)]
    waiting, before = _sum_at(flying, end_s), _sum_at(flying, begin_s)
    arrived = max(completed + (waiting - before if waiting is not None and before is not None else 0.0), 0.0)
    late: float | None = 1.0 - good / completed if completed > 0 else 1.0 if arrived > 0 or (waiting or 0.0) >= 1 else None
    periods, stopped = (
        _grown([(s, scope.born.get(s.labels.get("pod", ""))) for s in every], begin_s, end_s)
        for every in (readings.periods, readings.throttled)
    )
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


def _used_cpu_m(series: Sequence[Series], scope: Scope, begin_s: float, end_s: float) -> float | None:
    """Millicores of all pods. Kubelets tell CPU at /metrics/cadvisor and /metrics/resource: where both are scraped, a pod counts once."""
    told: dict[str, dict[tuple[str, ...], float]] = {}
    for s in series:
        pod, job = s.labels.get("pod", ""), tuple(s.labels.get(label, "") for label in SCRAPE_LABELS)
        if not reaches(s, end_s, _KUBELET_S):
            continue  # it ends within the window
        if (core_s := s.spent(begin_s, end_s, scope.born.get(pod))) is not None:
            jobs = told.setdefault(pod, {})
            jobs[job] = jobs.get(job, 0.0) + core_s
    if not told:
        return None
    by_pod = {pod: max(jobs.values()) for pod, jobs in told.items()}
    # kubelets are scraped at different times: a pod without a sample in this window worked all the same
    unseen = {s.labels.get("pod", "") for s in series if s.times_s[0] <= begin_s} & set(scope.born) - set(by_pod)
    typical = math.fsum(by_pod.values()) / len(by_pod)
    return 1000 * (math.fsum(by_pod.values()) + typical * len(unseen)) / (end_s - begin_s)


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
