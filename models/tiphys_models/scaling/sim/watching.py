"""Looks between two windows of simulated services: what the newest samples say, and what is raised at once."""

from __future__ import annotations

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.scaling.looks import LookReading, Need, Ordered, raised
from tiphys_models.scaling.rule_plus import SETTING
from tiphys_models.scaling.sim.learning import Learning
from tiphys_models.scaling.sim.plant import Plant
from tiphys_models.scaling.sim.scenario import PERIOD_S, ServiceScenario
from tiphys_models.scaling.sim.sizes import Sizes


class Watching:
    """Every look sees what arrived since the one before, and what waits; as old as the scenario has it."""

    def __init__(self, scenario: ServiceScenario, sizes: Sizes, plant: Plant, learning: Learning) -> None:
        if learning.control is None:
            raise ValueError("nobody said how often to look")
        self._s, self._sizes, self._plant, self._learning = scenario, sizes, plant, learning
        self._look_s = learning.control.look_s
        self._every = max(round(self._look_s / PERIOD_S), 1)
        self._window = -1
        self._before: FloatArray = np.zeros(len(learning.known))
        self._glimpses: list[tuple[FloatArray, FloatArray]] = []
        self._raised_in = np.full(len(learning.known), -9)

    def next_look(self, done: int) -> int:
        """The period of the window in which the next look is due, or its end."""
        return min((done // self._every + 1) * self._every, self._s.periods)

    def movable(self, window: int) -> BoolArray:
        """Nothing shrinks before the first window that began after a raise has ended: the one under way is mostly from before the jump."""
        free = np.ones((len(self._raised_in), 4), np.bool_)
        just = self._raised_in == window - 1
        free[:, 1] = free[:, 3] = ~just
        return free

    def look(self, window: int, done: int) -> None:
        """One look, `done` periods into the window."""
        arrived, in_flight = self._plant.glance()
        if window != self._window:
            self._window, self._before = window, np.zeros(len(arrived))
        since_s = self._every * PERIOD_S
        self._glimpses.append(((arrived - self._before) / since_s, in_flight))
        self._before = arrived
        del self._glimpses[: -1 - self._s.looks_late]
        if len(self._glimpses) > self._s.looks_late:
            self._raise(*self._glimpses[0], window, window * self._s.periods + done)

    def _raise(self, rate: FloatArray, in_flight: FloatArray, window: int, now: int) -> None:
        s, sizes = self._s, self._sizes
        ready, replicas, cpu_m = sizes.ready(now), sizes.ordered_replicas.copy(), sizes.ordered_m.copy()
        for i, known in enumerate(self._learning.known):
            ordered = Ordered(int(replicas[i]), int(ready[i]), float(cpu_m[i]), s.max_replicas, s.max_cpu_m, s.step_cpu_m)
            need = Need(known.request.cpu_ms, known.headroom.value, s.target_s, SETTING.pod_m, SETTING.spare_m)
            found = raised(LookReading(float(rate[i]), float(in_flight[i])), ordered, need, self._look_s)
            if found is not None:
                replicas[i], cpu_m[i] = found
                self._raised_in[i] = window
        sizes.order(replicas, cpu_m, now)
