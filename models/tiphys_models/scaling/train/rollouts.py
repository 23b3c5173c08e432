"""Lock-step episodes as transitions: rewards come from what windows really attained, by the arrival of their requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.scaling.moves import Moves
from tiphys_models.scaling.reward import bill, pain, reward
from tiphys_models.scaling.sim.episode import ServiceEpisode
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.load import Load, draw_load
from tiphys_models.scaling.sim.scenario import FIBONACCI, HOTEL, ServiceScenario
from tiphys_models.scaling.sim.shapes import make_shape
from tiphys_models.scaling.train.presets import Preset

Act = Callable[[FloatArray, BoolArray], IntArray]
"""(inputs, possible) -> actions"""
_SEEDS = 2**31


@dataclass(frozen=True, slots=True)
class Step:
    """One decision of all groups."""

    inputs: FloatArray
    possible: BoolArray
    action: IntArray
    reward: FloatArray
    """Reward of the window that the decision was for."""


def draw_loads(preset: Preset, services: int, scenario: ServiceScenario, pods: IntArray, rng: np.random.Generator) -> list[Load]:
    """Shapes of the train split, each from a seed of its own; `services` of a group are three different ones, or fibonacci alone."""
    loads = []
    for group in range(preset.groups):
        for member in range(services):
            name = preset.shapes[int(rng.integers(len(preset.shapes)))]
            shape = make_shape(name, "train", int(rng.integers(_SEEDS)), round(preset.windows * scenario.window_s))
            scaled = replace(shape, rps=shape.rps * pods[group] * rng.uniform(*preset.scale))
            loads.append(draw_load(scaled, HOTEL[member] if services > 1 else FIBONACCI))
    return loads


class Rollout:
    """Played step by step; `settled()` gives steps whose rewards are known, in order."""

    def __init__(self, preset: Preset, moves: Moves, rng: np.random.Generator) -> None:
        self.preset, self.moves = preset, moves
        scenario = preset.scenarios[int(rng.integers(len(preset.scenarios)))]
        pods = rng.integers(preset.pods[0], preset.pods[1] + 1, preset.groups) if preset.pods else np.ones(preset.groups, np.int64)
        self.loads = draw_loads(preset, moves.services, scenario, pods, rng)
        self.plant = FluidServices(self.loads, scenario)
        self.episode = ServiceEpisode(self.loads, scenario, self.plant)
        self.price: FloatArray = np.exp(rng.uniform(float(np.log(preset.prices[0])), float(np.log(preset.prices[1])), preset.groups))
        rate = np.array([load.shape.rps.mean() * load.service.cpu_ms for load in self.loads])
        self._typical = rate / 1000
        if preset.any_start:
            n = len(self.loads)
            replicas = pods if preset.pods else rng.integers(1, min(8, scenario.max_replicas) + 1, n)
            self.episode.start_with(replicas, 10.0 * rng.integers(5, 65, n))
        self._streak = np.zeros(len(self.loads))
        self._decided: list[tuple[FloatArray, BoolArray, IntArray]] = []
        self._bills: list[FloatArray] = []
        self._published: list[FloatArray] = []

    def play(self, act: Act) -> list[Step]:
        """Play the episode to its end; all steps whose rewards are known."""
        steps: list[Step] = []
        while not self.episode.over:
            readings = self.episode.advance()
            e = self.episode
            self._bills.append(bill(e.replicas, e.cpu_m))
            p90 = np.where(np.isnan(readings.p90_s), e.scenario.time_out_s, readings.p90_s) / e.scenario.target_s
            self._streak = np.where(p90 < 1, self._streak + 1, 0)
            answered = np.minimum(readings.completed / np.maximum(readings.arrived, 1), 1.0)
            self._published.append(np.array([p90, answered, readings.used_cpu_m, self._streak]))
            if len(self._decided) >= 2:
                steps.append(self._settle(len(steps)))
            seen = e.seen()
            if seen is None:
                continue
            look = self.moves.look(seen)
            inputs, possible = self.moves.inputs(look, self.price), self.moves.possible(look)
            action = act(inputs, possible)
            self._decided.append((inputs, possible, action))
            e.apply(seen, self.moves.take(look, action))
        return steps

    def _settle(self, index: int) -> Step:
        """Decision `index` was for the window after it, and one more has passed: its last requests were late or not."""
        inputs, possible, action = self._decided[index]
        window = self.episode.window - len(self._decided) + index
        return Step(inputs, possible, action, self._reward(window))

    def _reward(self, window: int) -> FloatArray:
        groups = self.preset.groups
        p90, answered, used_m, streak = self._published[window]
        if self.preset.reward == "published":
            p90 = p90.reshape(groups, -1)
            return np.where((p90 > 1).any(axis=1), -1.0, 1 - np.minimum(p90, 1).mean(axis=1) ** 0.4)
        if self.preset.reward == "published-vertical":
            return np.asarray(2 * (answered + np.maximum(1 - p90, 0)) - 25 * used_m / _NODE_M + 0.2 * streak)
        counts = self.plant.counted(window)
        late = self.plant.fluid.late[:, window] / np.maximum(counts, 1)
        cost, suffered = (a.reshape(groups, -1).mean(axis=1) for a in (self._bills[window] / self._typical, pain(late)))
        return reward(cost, suffered, self.price)


_NODE_M = 20_000.0
"""The published reward charges the node's CPU fraction: of twenty cores here."""
