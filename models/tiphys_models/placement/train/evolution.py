"""A network over the estimator, trained by evolution: small changes of all weights at once, tried in both directions on the same calls.

Nothing is differentiated: a decision moves the completion of hundreds of calls after it, and only playing them says by how much. What is
lowered is the mean logarithm of completion over that of the other direction, in worlds drawn from all that are played under Kubernetes'
filter. An untrained network is the estimator.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray
from tiphys_models.base.random import stream
from tiphys_models.placement.residual import NODE_INPUTS, WAIT_INPUTS, Head, flat
from tiphys_models.placement.sim.kube.play import ESTIMATOR, ESTIMATOR_NETWORK, KubePlayer, play_kube
from tiphys_models.placement.sim.kube.scenario import JUDGED, PRINTED, PROFILED, KubeScenario
from tiphys_models.placement.sim.workloads import MULTI, CallWorkload, Split, make_workload

_SAME = ("k8s-readings-15s", "k8s-readings-30s")
WORLDS = tuple(world for world in JUDGED if world.name not in _SAME)
"""Played in every step; readings of another age are no other world to those who read none."""
FURTHER = (*PRINTED, *PROFILED)
"""One of these is drawn in every step."""
_NODE_STEP, _WAIT_STEP, _HIDDEN_STEP, _OUT_STEP = 0.1, 0.15, 0.15, 0.4
_KEPT, _MOST_STEP, _RATE = 0.8, 0.6, 0.25
_CHAOS = 0.1
"""One decision may tip a whole minute over: no single difference counts for more."""

Unit = tuple[CallWorkload, KubeScenario]


@dataclass(frozen=True, slots=True)
class EvolutionSettings:
    """How long and how widely is searched."""

    units: int = 16
    steps: int = 10
    pairs: int = 10
    workloads: int = 6


@dataclass(frozen=True, slots=True)
class Evolved:
    """What came of one seed."""

    seed: int
    weights: FloatArray
    over_estimator: dict[str, float]
    """Mean completion over the estimator's on the validation split, by world."""
    episodes: int
    seconds: float

    @property
    def mean_over_estimator(self) -> float:
        """Mean over all worlds."""
        return float(np.mean(list(self.over_estimator.values())))


def player_of(weights: FloatArray) -> KubePlayer:
    """Whoever decides with these weights."""
    return replace(ESTIMATOR_NETWORK, weights=tuple(weights.tolist()))


def evolve(seed: int, settings: EvolutionSettings, tell: Callable[[str], None]) -> Evolved:
    """One seed from its own start, and what validation says of it."""
    started = time.monotonic()
    weights, episodes = searched(seed, settings, tell)
    return Evolved(seed, weights, over_estimator(weights, "validation", (0, 1)), episodes, time.monotonic() - started)


def searched(seed: int, settings: EvolutionSettings, tell: Callable[[str], None]) -> tuple[FloatArray, int]:
    """Weights, and how many episodes were played for them; the mean of the second half of all steps is what remains."""
    rng = stream("placement-estimator-network", seed)
    started, episodes = time.monotonic(), 0
    weights, scale, loud = _begin(settings.units, rng)
    momentum, late = np.zeros(len(weights)), []
    for step in range(settings.steps):
        units = _drawn(settings.workloads, rng)
        slope = _slope(weights, scale, units, settings.pairs, rng)
        episodes += 2 * settings.pairs * len(units)
        momentum = _KEPT * momentum + (1 - _KEPT) * slope
        now = momentum / (1 - _KEPT ** (step + 1))
        rate = _RATE * (1 - 0.7 * step / settings.steps)
        weights = weights - scale * np.clip(rate * now / np.sqrt((now[loud] ** 2).mean()), -_MOST_STEP, _MOST_STEP)
        if 2 * (step + 1) > settings.steps:
            late.append(weights)
        ratio = np.exp((logarithms(player_of(weights), units) - logarithms(ESTIMATOR, units)).mean())
        tell(f"  step {step + 1:>3}  {episodes:>6,} episodes  {time.monotonic() - started:5.0f} s  over the estimator {ratio:.4f}")
    found: FloatArray = np.mean(late, axis=0)
    return found, episodes


def over_estimator(weights: FloatArray, split: Split, seeds: tuple[int, ...]) -> dict[str, float]:
    """Mean completion over the estimator's, by world, on all ten workloads."""
    player, found = player_of(weights), {}
    for world in (*WORLDS, *FURTHER):
        units = [(make_workload(name, split, seed), world) for name in MULTI for seed in seeds]
        found[world.name] = float(np.exp(logarithms(player, units) - logarithms(ESTIMATOR, units)).mean())
    return found


def logarithms(player: KubePlayer, units: list[Unit]) -> FloatArray:
    """Logarithm of the mean completion of each unit."""
    return np.log([play_kube(workload, player, world).calls.completion_s.mean() for workload, world in units])


def _begin(units: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Weights that change nothing yet, by how much each is changed at a time, and which of them can be heard from the start."""
    heads, scales, loud = [], [], []
    for width, step in ((len(NODE_INPUTS), _NODE_STEP), (len(WAIT_INPUTS), _WAIT_STEP)):
        hidden = rng.normal(0.0, 1.0 / np.sqrt(width), (width, units))
        heads.append(Head(np.zeros(width), hidden, rng.normal(0.0, 0.5, units), np.zeros(units)))
        few = np.full((width, units), _HIDDEN_STEP), np.full(units, _HIDDEN_STEP)
        scales.append(Head(np.full(width, step), *few, np.full(units, step * _OUT_STEP)))
        quiet = np.zeros((width, units)), np.zeros(units)
        loud.append(Head(np.ones(width), *quiet, np.ones(units)))
    return flat((heads[0], heads[1])), flat((scales[0], scales[1])), flat((loud[0], loud[1])) > 0


def _drawn(count: int, rng: np.random.Generator) -> list[Unit]:
    """Workloads of the training split that nobody has seen before, in every world."""
    names = [MULTI[i] for i in rng.permutation(len(MULTI))[:count]]
    further = FURTHER[rng.integers(len(FURTHER))]
    drawn = [make_workload(name, "train", int(rng.integers(1_000_000, 50_000_000))) for name in names]
    return [(workload, world) for workload in drawn for world in (*WORLDS, further)]


def _slope(weights: FloatArray, scale: FloatArray, units: list[Unit], pairs: int, rng: np.random.Generator) -> FloatArray:
    """The slope of the logarithm of completion along each weight, in its own steps."""
    slope = np.zeros(len(weights))
    for _ in range(pairs):
        change = rng.normal(size=len(weights))
        apart = logarithms(player_of(weights + scale * change), units) - logarithms(player_of(weights - scale * change), units)
        slope += change * np.clip(apart, -_CHAOS, _CHAOS).mean() / 2
    return slope / pairs
