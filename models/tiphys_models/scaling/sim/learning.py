"""What is learned of simulated services while they are played: the state that a controller keeps, one a service, stepped by readings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.scaling.control import Control, Learned, WindowReading, step
from tiphys_models.scaling.request_cpu import RequestCPU
from tiphys_models.scaling.sim.plant import PlantReadings
from tiphys_models.scaling.sim.scenario import ServiceScenario
from tiphys_models.scaling.standing import Delays

_ONLY_MEASURED = Control(headroom=False, looks=False, standing=False)


class Learning:
    """Of every service of an episode; readings come when lag lets them be seen."""

    def __init__(self, true_ms: FloatArray, scenario: ServiceScenario, control: Control | None) -> None:
        self.control, self._s = control, scenario
        self._measures = scenario.cpu_measured or control is not None
        lag_s = scenario.lag_windows * scenario.window_s
        self.known = [Learned(RequestCPU(float(ms) * scenario.cpu_believed), delays=Delays(lag_s=lag_s)) for ms in true_ms]
        self._true_ms = true_ms
        self._starting: list[list[tuple[float, float]]] = [[] for _ in true_ms]

    def starts(self, service: int, now_s: float, ready_s: float) -> None:
        """A pod was created; how long it takes is known once it is ready."""
        if self.control is not None:
            self._starting[service].append((ready_s, ready_s - now_s))

    def after(self, window: PlantReadings, late: FloatArray, rates_before: FloatArray, now_s: float) -> None:
        """One more window is seen; `late` its shares, `rates_before` what was known when its sizes were decided."""
        if not self._measures:
            return
        control = self.control or _ONLY_MEASURED
        for i, known in enumerate(self.known):
            reading = WindowReading(
                self._s.window_s,
                float(window.arrived[i]) / self._s.window_s,
                float(window.completed[i]),
                None if np.isnan(late[i]) else float(late[i]),
                float(window.used_cpu_m[i]) if self._s.cpu_read else None,
                rates_before[i].tolist(),
            )
            self.known[i] = step(self._with_starts(i, known, now_s), reading, control, self._s.percentile)

    def _with_starts(self, service: int, known: Learned, now_s: float) -> Learned:
        delays = known.delays
        for ready_s, seconds in self._starting[service]:
            delays = delays.started(seconds) if ready_s <= now_s else delays
        self._starting[service] = [each for each in self._starting[service] if each[0] > now_s]
        return replace(known, delays=delays)

    @property
    def cpu_ms(self) -> FloatArray:
        """What agents are told that a request takes."""
        return np.array([known.request.cpu_ms for known in self.known]) if self._measures else self._true_ms

    @property
    def headroom(self) -> FloatArray:
        """The controllers' values; NaN where none controls."""
        controls = self.control is not None
        return np.array([known.headroom.value if controls else np.nan for known in self.known])

    @property
    def stands(self) -> BoolArray:
        """Whether pods stand by for jumps."""
        control = self.control
        return np.array([control is not None and known.stands(control, self._s.window_s) for known in self.known], np.bool_)


def latenesses(readings: PlantReadings) -> FloatArray:
    """Share of late requests of those completed; 1 where requests came or wait and none was completed, NaN where there is nothing."""
    r = readings
    with np.errstate(invalid="ignore"):
        nothing = np.where(r.arrived + r.in_flight > 0, 1.0, np.nan)
        return np.asarray(np.where(r.completed > 0, r.late / np.maximum(r.completed, 1e-9), nothing))
