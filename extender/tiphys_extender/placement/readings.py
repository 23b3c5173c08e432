"""Node readings into the state, every few seconds: from Prometheus, or from a file whose numbers count as just taken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiphys_extender.placement.pod_cpu import PodCpu
from tiphys_extender.serve.metrics import Metrics
from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.clock import Clock
from tiphys_models.base.errors import TiphysError, Unavailable
from tiphys_models.kube.objects import A_SLICE
from tiphys_models.kube.prometheus import PrometheusClient
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.schema import NODE_READINGS
from tiphys_models.placement.snapshot import read_snapshot
from tiphys_models.placement.state import PlacementState

_log = logging.getLogger(__name__)
_COVERAGE_AGE_S = 60.0


class PrometheusReadings:
    """Polls Prometheus; trouble leaves the last readings to grow old."""

    def __init__(
        self,
        client: PrometheusClient,
        state: PlacementState,
        metrics: Metrics,
        clock: Clock,
        interval_s: float,
        nodes_listed: Callable[[], bool] = lambda: True,
        beat: Callable[[], None] = lambda: None,
        pod_cpu: PodCpu | None = None,
    ) -> None:
        self._beat, self._pod_cpu = beat, pod_cpu
        self._client, self._state, self._metrics, self._clock = client, state, metrics, clock
        self._interval_s = interval_s
        self._nodes_listed = nodes_listed
        self._failing = False
        self._profiles: dict[str, FunctionProfile] = {}
        self._ahead_s = 0.0
        """Seconds by which Prometheus' clock is ahead of ours, as its last answer showed."""

    async def run(self) -> None:
        """The polling loop; it ends when its task is cancelled."""
        await _until(self._nodes_listed, self._interval_s)
        while True:
            started_s = self._clock.monotonic_s()
            await self.poll()
            self._beat()
            await asyncio.sleep(max(0.1, self._interval_s - (self._clock.monotonic_s() - started_s)))

    async def poll(self) -> None:
        """Once. What one answer makes us trip over leaves the others alone."""
        for reason, take in (
            ("unavailable", self._take_readings),
            ("idle-unavailable", self._take_idle),
            ("profiles-unavailable", self._take_profiles),
            ("pod-cpu-unavailable", self._take_pod_cpu),
        ):
            try:
                await take()
            except Unavailable as error:
                self._trouble(reason, str(error))
            except Exception as error:  # noqa: BLE001 - samples come from elsewhere: whatever they hold, the next poll is due
                self._trouble("unreadable", type(error).__name__)

    async def _take_readings(self) -> None:
        began_s = self._clock.now_s()
        table = await self._client.node_readings()
        for refused, count in table.rejected.items():
            self._metrics.invalid_readings[refused].inc(count)
        if not len(table.names) or np.isnan(table.values).all(axis=0).any():
            self._metrics.readings_errors["partly-missing"].inc()
        if len(table.names):  # Prometheus' present is the time of its newest sample
            self._ahead_s = max(0.0, float(table.read_at_s.max()) - began_s)
        self._state.put_readings(table.names, table.values, np.minimum(table.read_at_s - self._ahead_s, self._clock.now_s()))
        if len(table.names):
            self._metrics.readings_time.set(float(table.read_at_s.max()))
        self._failing = False

    async def _take_idle(self) -> None:
        counts, times = await self._client.idle_instances()
        now_s = self._clock.now_s()
        # a clock of Prometheus that runs ahead must make no report younger than it is
        self._state.put_idle(counts, {node: min(at_s - self._ahead_s, now_s) for node, at_s in times.items()})

    async def _take_profiles(self) -> None:
        profiles = await self._client.call_profiles()
        if profiles != self._profiles:  # they hardly ever change, and telling the state makes it score all nodes anew
            self._state.put_profiles(profiles)
            self._profiles = profiles

    async def _take_pod_cpu(self) -> None:
        if (cpu := self._pod_cpu) is None or not (namespaces := cpu.wanted()):
            return
        readings = await self._client.pod_cpu(cpu.series, namespaces, self._clock.now_s())
        for first in range(0, len(readings), A_SLICE):  # prioritize calls come in between
            cpu.pods.put(readings[first : first + A_SLICE])
            await asyncio.sleep(0)

    def _trouble(self, reason: str, why: str) -> None:
        self._metrics.readings_errors[reason].inc()
        if not self._failing:
            _log.warning("cannot take readings", extra={"fields": {"reason": reason, "why": why}})
        self._failing = True


class FixedReadings:
    """The same numbers again and again, always fresh: what a snapshot holds, for benchmarks and replays."""

    def __init__(
        self,
        readings: Mapping[str, list[float | None]],
        idle: Mapping[str, Mapping[str, float]],
        profiles: Mapping[str, FunctionProfile],
        state: PlacementState,
        metrics: Metrics,
        clock: Clock,
        interval_s: float,
        nodes_listed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._nodes_listed = nodes_listed
        self._names = list(readings)
        self._values: FloatArray = np.array([[np.nan if v is None else v for v in row] for row in readings.values()], np.float32).reshape(
            len(readings), len(NODE_READINGS)
        )
        self._idle, self._profiles = idle, profiles
        self._state, self._metrics, self._clock = state, metrics, clock
        self._interval_s = interval_s

    async def run(self) -> None:
        """Put the numbers again and again until cancelled."""
        await _until(self._nodes_listed, self._interval_s)
        while True:
            self.put()
            await asyncio.sleep(self._interval_s)

    def put(self) -> None:
        """Put the numbers into the state once, as just taken."""
        now_s = self._clock.now_s()
        if self._names:
            self._state.put_readings(self._names, self._values, np.full(len(self._names), now_s))
            self._metrics.readings_time.set(now_s)
        if self._idle:
            self._state.put_idle(self._idle, now_s)
        if self._profiles:
            self._state.put_profiles(self._profiles)


async def _until(nodes_listed: Callable[[], bool], at_most_s: float) -> None:
    """Readings of nodes that are not known yet would be dropped, and a whole interval lost."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            while not nodes_listed():  # noqa: ASYNC110 - the answer is a flag of a watch, looked at a few times in a life
                await asyncio.sleep(0.05)


def readings_from_file(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, FunctionProfile]]:
    """The readings, idle instances and call profiles of a snapshot file; InvalidInput says what is wrong with it."""
    snapshot = read_snapshot(path)
    if not snapshot.readings and not snapshot.idle:
        raise TiphysError(f"snapshot {path} holds no readings: write it with `tiphys snapshot --prometheus URL`")
    return snapshot.readings, snapshot.idle, snapshot.profiles


def coverage(state: PlacementState, now_s: float) -> float:
    """Share of known nodes with young readings; 0 without nodes."""
    known = len(state.nodes)
    if not known:
        return 0.0
    rows = np.fromiter(state.nodes.row_of.values(), np.int64, known)
    return float(np.count_nonzero(state.nodes.read_at_s[rows] >= now_s - _COVERAGE_AGE_S)) / known
