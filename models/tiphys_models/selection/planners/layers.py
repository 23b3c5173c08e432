"""Layers as they serve: each gives its output and a function that pulls a gradient of the output back to the input.

Weights are constants here, so that gradients of inputs are all there is; they are tested against autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from tiphys_models.base.arrays import FloatArray

Pull = Callable[[FloatArray], FloatArray]
Pair = tuple[FloatArray, FloatArray]
"""Mean and variance of a natural-parameter layer's output."""
PullPair = Callable[[FloatArray, FloatArray], Pair]

_LEAK = 0.01
_LEAST_VARIANCE = 1e-8
_PROBIT = float(np.sqrt(8 / np.pi))


def sigmoid(x: FloatArray) -> FloatArray:
    """The logistic function, computed without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * x)))


def softplus(x: FloatArray) -> tuple[FloatArray, Pull]:
    """log(1 + e^x), and the function that pulls a gradient back to x."""
    y = np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0.0)
    return y, lambda dy: dy * sigmoid(x)


def tanhshrink(x: FloatArray) -> tuple[FloatArray, Pull]:
    """x - tanh x."""
    t = np.tanh(x)
    return x - t, lambda dy: dy * t**2


def leaky_relu(x: FloatArray) -> tuple[FloatArray, Pull]:
    """x, or a hundredth of it below zero."""
    slope = np.where(x > 0, 1.0, _LEAK)
    return x * slope, lambda dy: dy * slope


def dense(x: FloatArray, w: FloatArray, b: FloatArray) -> tuple[FloatArray, Pull]:
    """x W + b."""
    return x @ w + b, lambda dy: dy @ w.T


def host_network(x: FloatArray, weights: Mapping[str, FloatArray]) -> tuple[FloatArray, Pull]:
    """GOBI's stack: softplus, softplus, tanhshrink, linear; one row a host."""
    pulls: list[Pull] = []
    for index, activation in enumerate((softplus, softplus, tanhshrink)):
        x, pull = dense(x, weights[f"w{index}"], weights[f"b{index}"])
        pulls.append(pull)
        x, pull = activation(x)
        pulls.append(pull)
    x, pull = dense(x, weights["w3"], weights["b3"])
    pulls.append(pull)
    return x, lambda dy: _through(pulls, dy)


def _through(pulls: list[Pull], dy: FloatArray) -> FloatArray:
    for pull in reversed(pulls):
        dy = pull(dy)
    return dy


def natural_dense(m: FloatArray, v: FloatArray, w: FloatArray, s: FloatArray, b: FloatArray, c: FloatArray) -> tuple[Pair, PullPair]:
    """Natural-parameter layer: weights W with variances S, bias b with variance c."""
    spread = s + w**2

    def pull(dm: FloatArray, dv: FloatArray) -> Pair:
        return dm @ w.T + 2 * m * (dv @ s.T), dv @ spread.T

    return (m @ w + b, v @ spread + m**2 @ s + c), pull


def natural_relu(m: FloatArray, v: FloatArray) -> tuple[Pair, PullPair]:
    """Mean and variance of max(0, x) for x normal, with the gate's probit approximated by a sigmoid."""
    root = np.sqrt(v)
    t = sigmoid(_PROBIT * m / root)
    g = root * np.exp(-(m**2) / (2 * v)) / np.sqrt(2 * np.pi)
    mean = t * m + g
    raw = t * (m**2 + v) + m * g - mean**2
    floor = raw > _LEAST_VARIANCE

    def pull(dm: FloatArray, dv: FloatArray) -> Pair:
        dv = dv * floor
        slope = t * (1 - t)
        t_m, t_v = slope * _PROBIT / root, -slope * _PROBIT * m / (2 * v * root)
        g_m, g_v = -g * m / v, g * (1 + m**2 / v) / (2 * v)
        mean_m, mean_v = t_m * m + t + g_m, t_v * m + g_v
        raw_m = t_m * (m**2 + v) + 2 * t * m + g + m * g_m - 2 * mean * mean_m
        raw_v = t_v * (m**2 + v) + t + m * g_v - 2 * mean * mean_v
        return dm * mean_m + dv * raw_m, dm * mean_v + dv * raw_v

    return (mean, np.maximum(raw, _LEAST_VARIANCE)), pull


def natural_network(x: FloatArray, weights: Mapping[str, FloatArray], layers: int) -> tuple[Pair, PullPair]:
    """Natural-parameter layers with ReLU between them, linear at the end; `s` and `c` are variances, positive as they are stored."""
    m, v = x, np.zeros_like(x)
    pulls: list[PullPair] = []
    for index in range(layers):
        (m, v), pull = natural_dense(m, v, *(weights[f"{part}{index}"] for part in "wsbc"))
        pulls.append(pull)
        if index < layers - 1:
            (m, v), pull = natural_relu(m, v)
            pulls.append(pull)

    def back(dm: FloatArray, dv: FloatArray) -> Pair:
        for pull in reversed(pulls):
            dm, dv = pull(dm, dv)
        return dm, dv

    return (m, v), back


def natural_shapes(widths: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Arrays of a natural-parameter network: weights w, their variances s, biases b, their variances c."""
    found: dict[str, tuple[int, ...]] = {}
    for i, (a, b) in enumerate(pairwise(widths)):
        found |= {f"w{i}": (a, b), f"s{i}": (a, b), f"b{i}": (b,), f"c{i}": (b,)}
    return found


def natural_sigmoid(m: FloatArray, v: FloatArray) -> Pair:
    """Mean and variance of sigmoid(x) for x normal; only forecasts need it, so it has no gradient."""
    a, c = 4 - 2 * np.sqrt(2), -np.log(np.sqrt(2) + 1)
    mean = sigmoid(m / np.sqrt(1 + np.pi * v / 8))
    raw = sigmoid(a * (m + c) / np.sqrt(1 + np.pi * a**2 * v / 8)) - mean**2
    return mean, np.maximum(raw, _LEAST_VARIANCE)
