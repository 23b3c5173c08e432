"""Noise on a shape: rates times a log-normal that wanders, three hours of it. Nobody is told how strong it is, or how long it lasts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.sim.shapes import HOUR_S, MOST_RPS, LoadShape, make_shape

NOISES: dict[str, tuple[float, float]] = {"20": (0.2, 60.0), "35": (0.35, 20.0), "50": (0.5, 5.0)}
"""By the ending of its name: coefficient of variation, and seconds over which it is correlated."""
NOISY = tuple(f"noisy-{name}" for name in NOISES)
"""The diurnal shape with noise."""
NOISY_S = 3 * HOUR_S


def noisy_ending(label: str) -> str:
    """The name of the noise on a shape: `20` of `noisy-20` and of `NAME-noisy-20`; empty where there is none."""
    head, _, ending = label.rpartition("noisy-")
    return ending if ending in NOISES and (not head or head.endswith("-")) else ""


def make_noisy(name: str, split: str, seed: int, seconds: int = NOISY_S) -> LoadShape:
    """A named one: `noisy-20`, `noisy-35`, `noisy-50`."""
    calm = make_shape("diurnal", split, seed, seconds)
    return with_noise(replace(calm, name=name), noisy_ending(name))


def with_noise(shape: LoadShape, ending: str) -> LoadShape:
    """The shape with this noise, drawn for its name and seed."""
    cv, correlated_s = NOISES[ending]
    rng = shape.rng("noise", ending)
    return replace(shape, rps=np.minimum(shape.rps * _wandering(rng, len(shape.rps), cv, correlated_s), MOST_RPS))


def repeated(shape: LoadShape, seconds: int) -> LoadShape:
    """A file played again and again until the time is over."""
    return replace(shape, rps=np.resize(shape.rps, seconds))


def _wandering(rng: np.random.Generator, seconds: int, cv: float, correlated_s: float) -> FloatArray:
    """Mean 1; the logarithm is an Ornstein-Uhlenbeck process, one value a second."""
    variance, keeps = np.log1p(cv**2), np.exp(-1 / correlated_s)
    steps = rng.normal(0.0, np.sqrt(variance), seconds)
    steps[1:] *= np.sqrt(1 - keeps**2)
    value, log = 0.0, np.empty(seconds)
    for second, by in enumerate(steps.tolist()):
        value = keeps * value + by
        log[second] = value
    return np.asarray(np.exp(log - variance / 2))
