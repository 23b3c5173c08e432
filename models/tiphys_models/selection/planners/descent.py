"""Gradient descent on a decision: the matrix tasks x hosts is the input that moves, the surrogate's weights stay.

GOBI's and GOSH's rows are put back to one host each after every step, so that the surrogate is only ever asked about decisions it
has learned to judge; what the search returns are the decisions it has visited, best first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray

Surrogate = Callable[[FloatArray], tuple[float, FloatArray]]
"""Decision -> (value, gradient)."""
Scale = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
"""(decision, its gradient, the same centred) -> the numbers that divide the steps."""

_BETA_M, _BETA_S, _EPS = 0.9, 0.999, 1e-4


@dataclass(frozen=True, slots=True)
class DescentSchedule:
    """Published constants of COSCO's optimisers."""

    steps: int = 200
    patience: int = 10
    """Steps in a row that find nothing better, after which the search ends: one period of the rate. Published are 30 unchanged ones, three
    periods that repeat the first; and a search between two decisions of equal worth would never end."""
    rate: float = 0.8
    period: int = 10
    """Steps between the ends of the cosine by which the rate goes down and up again."""
    decay: float = 1e-2

    def rate_at(self, step: int) -> float:
        """Learning rate of a step."""
        return float(self.rate * (1 + np.cos(np.pi * step / self.period)) / 2)


SCHEDULE = DescentSchedule()


def one_hot(columns: IntArray, width: int) -> FloatArray:
    """A row a task."""
    return np.eye(width)[columns]


def gradient_scale(x: FloatArray, gradient: FloatArray, centred: FloatArray) -> FloatArray:
    """First order: half of what a task could gain by the best move. A row's steps are scaled together: each for itself (as Adam does),
    every host that improves anything would move by the same amount, and the choice among them would fall to the first in the list."""
    return np.repeat(-centred.min(axis=1, keepdims=True), centred.shape[1], axis=1)


def hessian_scale(surrogate: Surrogate, rng: np.random.Generator, width: float = 1e-4) -> Scale:
    """Second order (AdaHessian): |H z| for random signs z, by differences of exact gradients."""

    def scale(x: FloatArray, gradient: FloatArray, centred: FloatArray) -> FloatArray:
        z = rng.choice((-1.0, 1.0), x.shape)
        return np.asarray(np.abs(surrogate(x + width * z)[1] - gradient) / width)

    return scale


def descend(
    surrogate: Surrogate, start: IntArray, allowed: BoolArray, scale: Scale, schedule: DescentSchedule, keep: int = 2
) -> list[IntArray]:
    """The `keep` best distinct decisions on the way, best first by the surrogate."""
    width, rows = allowed.shape[1], np.arange(len(start))
    columns, best = start, np.inf
    visited: dict[tuple[int, ...], float] = {}
    m, s = np.zeros(allowed.shape), np.zeros(allowed.shape)
    still = 0
    for step in range(schedule.steps):
        x = one_hot(columns, width)
        value, gradient = surrogate(x)
        visited.setdefault(tuple(columns.tolist()), value)
        # A row's constant part moves no choice, since a decision only compares hosts; centred between the present host and the best
        # one, a step takes from the one what it gives to the other.
        least = np.where(allowed, gradient, np.inf).min(axis=1)
        centred = np.where(allowed, gradient - (gradient[rows, columns] + least)[:, None] / 2, 0.0)
        m = _BETA_M * m + (1 - _BETA_M) * centred
        s = _BETA_S * s + (1 - _BETA_S) * scale(x, gradient, centred)
        m_hat, s_hat = m / (1 - _BETA_M ** (step + 1)), s / (1 - _BETA_S ** (step + 1))
        x = x * (1 - schedule.rate_at(step) * schedule.decay) - schedule.rate_at(step) * m_hat / (s_hat + _EPS)
        moved = np.where(allowed, x, -np.inf).argmax(axis=1)
        columns = np.asarray(moved, np.int64)
        still, best = (0, value) if value < best else (still + 1, best)
        if still >= schedule.patience:
            break
    return [np.array(key, np.int64) for key in sorted(visited, key=lambda key: (visited[key], key))[:keep]]


def softmax_descend(surrogate: Surrogate, start: IntArray, allowed: BoolArray, steps: int = 50, rate: float = 0.1) -> IntArray:
    """GRAF's: Adam on logits whose softmax weights the edges; the decision is the heaviest edge of every task at the end."""
    closed = np.where(allowed, 0.0, -1e9)
    z = one_hot(start, allowed.shape[1]) * (np.log(allowed.shape[1]) + 1.0) + closed
    m, v = np.zeros_like(z), np.zeros_like(z)
    for step in range(steps):
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        _, dp = surrogate(p)
        gradient = p * (dp - (p * dp).sum(axis=1, keepdims=True))
        m = 0.9 * m + 0.1 * gradient
        v = 0.999 * v + 0.001 * gradient**2
        z = z - rate * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
    return np.asarray((z + closed).argmax(axis=1), np.int64)
