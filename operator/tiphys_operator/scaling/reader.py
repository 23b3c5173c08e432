"""Windows of one workload from Prometheus, kept between decisions; a restarted operator reads the recent ones anew."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_reasons import ScalingReason
from tiphys_models.base.errors import Unavailable
from tiphys_models.kube.prometheus import AnswerTooLarge, PrometheusClient, QueryTurns, Turn
from tiphys_models.scaling.seen import HISTORY, RECENT
from tiphys_models.scaling.state import Window
from tiphys_operator.cluster.scaled import ScaledPod
from tiphys_operator.scaling.copies import largest, told_once
from tiphys_operator.scaling.measured import Measured, Readings, Scope, believed, measure
from tiphys_operator.scaling.presence import Presence, Running
from tiphys_operator.scaling.raising import Glimpse, glimpse
from tiphys_operator.scaling.series import Series, parse_matrix, warnings_of
from tiphys_operator.scaling.sources import CPU_COUNTERS, SeriesSource, source_of

log = logging.getLogger(__name__)

_SCRAPE_S = 15.0
"""Longest usual time between two samples: what a query reaches back beyond its windows."""
_REMEMBERED_WINDOWS = 2
_LOOK_BACK_S = 2.2 * _SCRAPE_S
"""Two samples, however rare."""
FIRSTS_AT_ONCE = 6
"""A policy's first question goes back for all recent windows: ten times as much as each later one."""
_FEW = 64
"""Series that are worked off at once: a thread takes longer to begin."""
T = TypeVar("T")


class WindowReader:
    """Windows of one policy, for one generation of its spec."""

    def __init__(
        self,
        spec: ScalingPolicySpec,
        namespace: str,
        container: str,
        turns: QueryTurns | None = None,
        firsts: asyncio.Semaphore | None = None,
    ) -> None:
        """`turns` and `firsts` are shared by all policies, so that long answers, and first ones, of few of them are in memory at once."""
        self._turns, self._firsts = turns or QueryTurns(), firsts or asyncio.Semaphore(FIRSTS_AT_ONCE)
        self._spec, self._namespace, self._container = spec, namespace, container
        self._source: SeriesSource = source_of(spec.objective.metrics, spec.target_ref, namespace)
        self._windows: deque[Window] = deque(maxlen=RECENT)
        self._rates: deque[float] = deque(maxlen=HISTORY)
        self._names: dict[str, float] = {}
        self._addresses: dict[str, str] = {}
        self._presence = Presence()
        self._complete_rate: float | None = None
        """Requests a second of the last window of which nothing was missing."""

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
        self._addresses |= {pod.address: pod.name for pod in pods if pod.address}
        # pods that just went have answered requests of this window
        self._names = {name: at for name, at in self._names.items() if at >= now_s - _REMEMBERED_WINDOWS * length_s}
        self._addresses = {address: name for address, name in self._addresses.items() if name in self._names}
        if not self._names:
            return Measured(problem=ScalingReason.SERIES_MISSING, message="there is no pod")
        async with self._turns.turn() as turn, self._firsts if not self._windows else contextlib.nullcontext():
            try:
                count, readings = await self._recent(prometheus, length_s, turn)
            except AnswerTooLarge as error:
                return Measured(tuple(self._windows), ScalingReason.ANSWER_TOO_LARGE, str(error)[:300])
            except Unavailable as error:
                return Measured(tuple(self._windows), ScalingReason.PROMETHEUS_UNREACHABLE, str(error)[:300])
            work = partial(measure, readings, self._scope(pods, length_s), count, self._presence)
            found = await _worked_off(work, len(readings.buckets) * count)
            del readings
        if not self._windows and found.windows:
            self._rates.extend(await self._past(prometheus, found.windows[0].at_s, length_s))
        if self._take(found.windows, length_s, complete=not found.partial):
            self._presence = found.presence
        return replace(found, windows=tuple(self._windows))

    async def _recent(self, prometheus: PrometheusClient, length_s: float, turn: Turn) -> tuple[int, Readings]:
        """A number of windows and the samples for it: many at the first read, unless the answer is too large, then one at a time."""
        names = sorted(self._names)
        if not self._windows:
            with contextlib.suppress(AnswerTooLarge):
                return RECENT, await self._readings(prometheus, names, (RECENT + 1) * length_s + _SCRAPE_S, turn)
        return 1, await self._readings(prometheus, names, 2 * length_s + _SCRAPE_S, turn)

    def _scope(self, pods: Sequence[ScaledPod], length_s: float) -> Scope:
        objective, born = self._spec.objective, {pod.name: pod.started_s for pod in pods if pod.ready}
        return Scope(
            target_s=objective.latency_milliseconds / 1000,
            percentile=objective.percentile / 100,
            length_s=length_s,
            per_second=self._source.per_second,
            pod_label=self._source.pod_label,
            born=born,
            running=Running(
                born,
                lives={pod.name: f"{pod.uid}/{pod.restarts}" for pod in pods},
                addresses=dict(self._addresses),
                known=frozenset(self._names),
            ),
        )

    async def look(self, prometheus: PrometheusClient | None, pods: Sequence[ScaledPod]) -> Glimpse | None:
        """What the newest samples say of the pods that run; None if they say nothing new."""
        names = sorted(pod.name for pod in pods)
        if prometheus is None or not names or not self._windows or not self._source.in_flight:
            return None
        try:
            completed, flying = await asyncio.gather(
                self._series(prometheus, self._source.completed(names, _LOOK_BACK_S)),
                self._series(prometheus, self._source.flight(names, _LOOK_BACK_S)),
            )
        except Unavailable as error:
            log.debug("a look between windows failed", extra={"fields": {"error": str(error)}})
            return None
        since_s = self._windows[-1].at_s
        once, _ = told_once(completed[0], since_s)
        return glimpse(once, largest(flying[0]), self._source.pod_label, names, since_s)

    def _take(self, windows: Sequence[Window], length_s: float, *, complete: bool) -> bool:
        """Keep those that are new, as far as they are believed; whether there was one."""
        taken, fall = False, self._spec.objective.metrics.max_fall_percent / 100
        for window in windows:
            if self._windows and window.at_s <= self._windows[-1].at_s:
                continue  # no sample since the last look: an old window is no new one
            if self._windows:
                missed = round((window.at_s - self._windows[-1].at_s) / length_s) - 1
                self._rates.extend([math.nan] * min(max(missed, 0), HISTORY))
            kept = believed(window, self._complete_rate, fall)
            self._windows.append(kept)
            self._rates.append(kept.arrived / kept.length_s)
            taken = True
            # of former windows nobody knows any more who should have told of them
            if complete or window is not windows[-1]:
                self._complete_rate = window.arrived / window.length_s
        return taken

    async def _past(self, prometheus: PrometheusClient, before_s: float, length_s: float) -> list[float]:
        """Rates of the windows before the first that is measured: for what recurs within hours, approximate edges will do."""
        try:
            series, _ = await self._series(prometheus, self._source.past(HISTORY, length_s))
        except Unavailable as error:
            log.debug("past rates could not be read", extra={"fields": {"error": str(error)}})
            return []
        known = {round(t / length_s): v for s in series for t, v in zip(s.times_s, s.values, strict=True)}
        last = round(before_s / length_s) - 1
        first = min((number for number in known if number <= last), default=last + 1)
        return [known.get(number, math.nan) for number in range(first, last + 1)]

    async def _readings(self, prometheus: PrometheusClient, names: Sequence[str], span_s: float, turn: Turn) -> Readings:
        source, box = self._source, self._container
        queries: Mapping[str, str] = {
            "buckets": source.buckets(names, span_s),
            "in_flight": source.flight(names, span_s),
            "cpu": source.cpu(names, box, span_s),
            "up": source.up(names, span_s),
        }
        asked = {part: query for part, query in queries.items() if query}
        answers = await asyncio.gather(*(self._series(prometheus, query, turn) for query in asked.values()))
        warnings = dict.fromkeys(text for _, told in answers for text in told)
        found = dict(zip(asked, (series for series, _ in answers), strict=True))
        used, throttled, periods = (tuple(s for s in found["cpu"] if s.labels.get("__name__") == name) for name in CPU_COUNTERS)
        return Readings(
            found["buckets"], found.get("in_flight", ()), used, throttled, periods, found.get("up", ()), warnings=tuple(warnings)
        )

    async def _series(
        self, prometheus: PrometheusClient, query: str, turn: Turn | None = None
    ) -> tuple[tuple[Series, ...], tuple[str, ...]]:
        """The series that answer the query, and Prometheus' own warnings about the answer."""
        answer = await prometheus.ranges(query, self._namespace, turn)
        try:
            return tuple(await _worked_off(partial(parse_matrix, answer), len(answer["data"]["result"]))), warnings_of(answer)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Unavailable(f"Prometheus sent something that is no range of samples: {error!r}") from error


async def _worked_off(work: Callable[[], T], series: int) -> T:
    """What work on so many series comes to: on many in a thread, which keeps the loop free for the other policies."""
    return work() if series <= _FEW else await asyncio.to_thread(work)
