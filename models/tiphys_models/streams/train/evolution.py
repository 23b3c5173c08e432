"""Covariance matrix adaptation (Hansen's CMA-ES, rank one and rank mu) with mirrored samples: climbs what can only be tried."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiphys_models.base.arrays import FloatArray


@dataclass(slots=True)
class Evolution:
    """Ask for points, try them, tell how good they were."""

    mean: FloatArray
    spread: FloatArray
    """Initial spread of every number, in its own unit: where to look at first."""
    samples: int
    """Samples of a round; an even number."""
    rng: np.random.Generator
    step: float = 1.0
    _covariance: FloatArray = field(init=False)
    _paths: FloatArray = field(init=False)
    """Evolution paths of the step size and of the covariance."""
    _drawn: FloatArray = field(init=False)
    _axes: FloatArray = field(init=False)
    _lengths: FloatArray = field(init=False)
    _rounds: int = 0

    def __post_init__(self) -> None:
        self._covariance, self._paths = np.eye(len(self.mean)), np.zeros((2, len(self.mean)))

    def ask(self) -> FloatArray:
        """[samples, numbers]: pairs on either side of the mean."""
        values, self._axes = np.linalg.eigh(self._covariance)
        self._lengths = np.sqrt(np.maximum(values, 1e-12))
        half = self.rng.standard_normal((self.samples // 2, len(self.mean)))
        self._drawn = (np.concatenate([half, -half]) * self._lengths) @ self._axes.T
        return np.asarray(self.mean + self.step * self.spread * self._drawn)

    def tell(self, good: FloatArray) -> None:
        """How good each of those that were asked for is: more is better. Constants are those of Hansen's tutorial."""
        n, parents = len(self.mean), self.samples // 2
        weights = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
        weights /= weights.sum()
        mass = 1.0 / float((weights**2).sum())
        best = self._drawn[np.argsort(-good)[:parents]]
        moved = weights @ best
        self.mean = self.mean + self.step * self.spread * moved
        self._rounds += 1
        of_step, of_path = (mass + 2) / (n + mass + 5), (4 + mass / n) / (n + 4 + 2 * mass / n)
        rank_one = 2 / ((n + 1.3) ** 2 + mass)
        rank_mu = min(1 - rank_one, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        white = self._axes @ ((self._axes.T @ moved) / self._lengths)
        self._paths[0] = (1 - of_step) * self._paths[0] + np.sqrt(of_step * (2 - of_step) * mass) * white
        expected = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
        length = float(np.linalg.norm(self._paths[0])) / expected
        calm = length / np.sqrt(1 - (1 - of_step) ** (2 * self._rounds)) < 1.4 + 2 / (n + 1)
        self._paths[1] = (1 - of_path) * self._paths[1] + calm * np.sqrt(of_path * (2 - of_path) * mass) * moved
        self._covariance = (
            (1 - rank_one - rank_mu) * self._covariance
            + rank_one * np.outer(self._paths[1], self._paths[1])
            + rank_mu * (best.T * weights) @ best
        )
        damping = 1 + 2 * max(0.0, float(np.sqrt((mass - 1) / (n + 1))) - 1) + of_step
        self.step *= float(np.exp(min(1.0, of_step / damping * (length - 1))))
