"""Labels by clones: from one state every action is played on with the same future, and the difference to the base action is learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.streams.agent import ACTIONS
from tiphys_models.streams.sim.choosers import SimulatedBinder, ahead
from tiphys_models.streams.sim.episode import Action, QueryFractions, StreamEpisode, WindowMoment
from tiphys_models.streams.sim.search import Course
from tiphys_models.streams.sim.topology import make_topology
from tiphys_models.streams.sim.workloads import make_streams
from tiphys_models.streams.train.presets import Preset


@dataclass(frozen=True, slots=True)
class Lessons:
    """One row a labelled window."""

    features: FloatArray
    advantages: FloatArray
    """[rows, actions]: points of success over the base action, as a mean over the horizon's queries."""


def gather(course: Course, preset: Preset, actions: tuple[Action, ...], base: int, rng: np.random.Generator) -> Lessons:
    """Episodes of the base action with wandering; windows to label are drawn at random."""
    rows = [
        row
        for topology in course.topologies
        for rate in course.lambdas
        for _ in range(preset.episodes)
        for row in _episode(course, topology, rate, preset, actions, base, rng)
    ]
    return Lessons(np.array([r[0] for r in rows]), np.array([r[1] for r in rows]))


def _episode(
    course: Course, topology: str, rate: float, preset: Preset, actions: tuple[Action, ...], base: int, rng: np.random.Generator
) -> list[tuple[FloatArray, FloatArray]]:
    where = make_topology(topology)
    streams = make_streams(course.split, int(rng.integers(2**31)), rate)
    episode = StreamEpisode(where.world, streams, course.scenario)
    watcher = SimulatedBinder(where.offers, streams)
    windows = round(episode.horizon_s / 5.0)
    chosen = set(rng.choice(windows - preset.horizon, preset.labelled, replace=False).tolist())
    made: list[tuple[FloatArray, FloatArray]] = []
    last: QueryFractions | None = None
    taken = base
    for index in range(windows):
        features = watcher.features(WindowMoment(index, last, episode), taken)
        if index in chosen:
            answered = np.array([ahead(episode, action, actions[base], preset.horizon) for action in actions])
            asked = float(streams.rate_qps @ _overlap(streams.start_s, streams.end_s, episode.now_s, preset.horizon * 5.0))
            made.append((features, 100 * (answered - answered[base]) / max(asked, 1.0)))
        taken = int(rng.integers(len(ACTIONS))) if rng.random() < preset.wander else base
        last = episode.window(actions[taken])
    return made


def _overlap(start_s: FloatArray, end_s: FloatArray, from_s: float, length_s: float) -> FloatArray:
    return np.clip(np.minimum(end_s, from_s + length_s) - np.maximum(start_s, from_s), 0.0, None)
