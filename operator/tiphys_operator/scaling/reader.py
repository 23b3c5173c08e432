"""Windows of one workload from Prometheus, kept between decisions; a restarted operator reads the recent ones anew."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence

from tiphys_models.api.reasons import ScalingReason
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.clients.prometheus import PrometheusClient
from tiphys_models.domain.errors import Unavailable
from tiphys_models.scaling.seen import HISTORY, RECENT
from tiphys_models.scaling.state import Window
from tiphys_operator.scaling.measured import Measured, Readings, Scope, measure
from tiphys_operator.scaling.raising import Glimpse, glimpse
from tiphys_operator.scaling.series import Series, parse_matrix
from tiphys_operator.scaling.sources import Source, source_of
from tiphys_operator.scaling.workload import ScaledPod

log = logging.getLogger(__name__)

_SCRAPE_S = 15.0
"""Longest usual time between two samples: what a query reaches back beyond its windows."""
_REMEMBERED_WINDOWS = 2
_LOOK_BACK_S = 2.2 * _SCRAPE_S
"""Two samples, however rare."""


class WindowReader:
    """Of one policy's generation."""

    def __init__(self, spec: ScalingPolicySpec, namespace: str, container: str) -> None:
        self._spec, self._container = spec, container
        self._source: Source = source_of(spec.objective.metrics, spec.target_ref, namespace)
        self._windows: deque[Window] = deque(maxlen=RECENT)
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._names: dict[str, float] = {}

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests a second of past windows, oldest first; NaN where none was measured."""
        return tuple(self._rates)

    async def read(self, prometheus: PrometheusClient | None, pods: Sequence[ScaledPod], now_s: float) -> Measured:
        """All recent windows, the newest just measured."""
        if prometheus is None:
            return Measured(problem=ScalingReason.PROMETHEUS_UNREACHABLE, message="no Prometheus is set: see extender.prometheus.url")
        length_s = float(self._spec.interval_seconds)
        self._names |= {pod.name: now_s for pod in pods}
        # pods that just went have answered requests of this window
        self._names = {name: at for name, at in self._names.items() if at >= now_s - _REMEMBERED_WINDOWS * length_s}
        if not self._names:
            return Measured(problem=ScalingReason.SERIES_MISSING, message="there is no pod")
        count = 1 if self._windows else RECENT
        try:
            readings = await self._readings(prometheus, sorted(self._names), (count + 1) * length_s + _SCRAPE_S)
        except Unavailable as error:
            return Measured(tuple(self._windows), ScalingReason.PROMETHEUS_UNREACHABLE, str(error)[:300])
        scope = Scope(
            target_s=self._spec.objective.latency_milliseconds / 1000,
            percentile=self._spec.objective.percentile / 100,
            length_s=length_s,
            per_second=self._source.per_second,
            pod_label=self._source.pod_label,
            born={pod.name: pod.started_s for pod in pods if pod.ready},
        )
        found = measure(readings, scope, count)
        if not self._windows and found.windows:
            self._rates.extend(await self._past(prometheus, found.windows[0].at_s, length_s))
        self._take(found.windows, length_s)
        return Measured(tuple(self._windows), found.problem, found.message, found.silent)

    async def look(self, prometheus: PrometheusClient | None, pods: Sequence[ScaledPod]) -> Glimpse | None:
        """What the newest samples say of the pods that run; None if they say nothing new."""
        names = sorted(pod.name for pod in pods)
        if prometheus is None or not names or not self._windows or not self._source.in_flight:
            return None
        try:
            completed, flying = await asyncio.gather(
                _series(prometheus, self._source.completed(names, _LOOK_BACK_S)),
                _series(prometheus, self._source.flight(names, _LOOK_BACK_S)),
            )
        except Unavailable as error:
            log.debug("a look between windows failed", extra={"fields": {"error": str(error)}})
            return None
        return glimpse(completed, flying, self._source.pod_label, names, self._windows[-1].at_s)

    def _take(self, windows: Sequence[Window], length_s: float) -> None:
        for window in windows:
            if self._windows and window.at_s <= self._windows[-1].at_s:
                continue  # no sample since the last look: an old window is no new one
            if self._windows:
                missed = round((window.at_s - self._windows[-1].at_s) / length_s) - 1
                self._rates.extend([math.nan] * min(max(missed, 0), HISTORY))
            self._windows.append(window)
            self._rates.append(window.arrived / window.length_s)

    async def _past(self, prometheus: PrometheusClient, before_s: float, length_s: float) -> list[float]:
        """Rates of the windows before the first that is measured: for what recurs within hours, approximate edges will do."""
        try:
            series = await _series(prometheus, self._source.past(HISTORY, length_s))
        except Unavailable as error:
            log.debug("past rates could not be read", extra={"fields": {"error": str(error)}})
            return []
        known = {round(t / length_s): v for s in series for t, v in zip(s.times_s, s.values, strict=True)}
        last = round(before_s / length_s) - 1
        first = min((number for number in known if number <= last), default=last + 1)
        return [known.get(number, math.nan) for number in range(first, last + 1)]

    async def _readings(self, prometheus: PrometheusClient, names: Sequence[str], span_s: float) -> Readings:
        source, box = self._source, self._container
        queries: Mapping[str, str] = {
            "buckets": source.buckets(names, span_s),
            "in_flight": source.flight(names, span_s),
            "used": source.cpu("container_cpu_usage_seconds_total", names, box, span_s),
            "throttled": source.cpu("container_cpu_cfs_throttled_periods_total", names, box, span_s),
            "periods": source.cpu("container_cpu_cfs_periods_total", names, box, span_s),
        }
        asked = {part: query for part, query in queries.items() if query}
        answers = await asyncio.gather(*(_series(prometheus, query) for query in asked.values()))
        return Readings(**dict(zip(asked, answers, strict=True)))


async def _series(prometheus: PrometheusClient, query: str) -> tuple[Series, ...]:
    answer = await prometheus.ranges(query)
    try:
        return tuple(await asyncio.to_thread(parse_matrix, answer))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"Prometheus sent something that is no range of samples: {error!r}") from error
