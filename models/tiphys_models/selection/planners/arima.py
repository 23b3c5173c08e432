"""ARIMA(p, d, q) for many short series at once: p, q in 0..3, d in 0..1, chosen by AIC.

Hannan and Rissanen's two regressions: a long autoregression gives residuals, and the series is regressed on its own lags and theirs.
Likelihood fits of 32 orders for every busy host would not end within an interval; this takes milliseconds and has no starting values.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from tiphys_models.base.arrays import FloatArray

MAX_P, MAX_D, MAX_Q = 3, 1, 3
SHORTEST = 20
"""Fewer values: the forecast is the last one."""
_LONG = 6
"""Order of the first autoregression."""
_RIDGE = 1e-6
"""Ridge added to the regressions, as a share of the variance: it keeps collinear lags solvable."""


def forecast(series: FloatArray) -> FloatArray:
    """series x time -> the next value of each, within 0..1."""
    last = series[:, -1] if series.shape[1] else np.zeros(len(series))
    if series.shape[1] < SHORTEST:
        return np.asarray(last, np.float64)
    result = np.array(last, np.float64)
    lively = np.flatnonzero(np.ptp(series, axis=1) > 1e-9)
    if len(lively):
        result[lively] = np.clip(_best(series[lively].astype(np.float64)), 0.0, 1.0)
    return result


def _best(series: FloatArray) -> FloatArray:
    """Forecast of the order with the least AIC, for each series; all orders are judged by the same last values."""
    judged = series.shape[1] - (_LONG + MAX_D + MAX_Q)
    best, value = np.full(len(series), np.inf), series[:, -1].copy()
    for d in range(MAX_D + 1):
        level = np.diff(series, n=d, axis=1) if d else series
        residuals = _long_residuals(level)
        for p, q in product(range(MAX_P + 1), range(MAX_Q + 1)):
            error, ahead = _fit(level, residuals, p, q, judged, constant=d == 0)
            aic = judged * np.log(error / judged + 1e-12) + 2 * (p + q + (d == 0) + 1)
            better = aic < best - 1e-9
            best = np.where(better, aic, best)
            value = np.where(better, ahead + (series[:, -1] if d else 0.0), value)
    return np.asarray(value)


def _long_residuals(level: FloatArray) -> FloatArray:
    """One for each value; zero for the first ones, which have no past."""
    lags = _lags(level, _LONG)
    lags = np.concatenate([np.ones((*lags.shape[:2], 1)), lags], axis=2)
    target = level[:, _LONG:]
    fitted = np.einsum("stk,sk->st", lags, _solve(lags, target))
    return np.concatenate([np.zeros((len(level), _LONG)), target - fitted], axis=1)


def _fit(level: FloatArray, residuals: FloatArray, p: int, q: int, judged: int, *, constant: bool) -> tuple[FloatArray, FloatArray]:
    """(sum of squared errors over the judged values, the next value)."""
    most = max(p, q)
    parts = [np.ones((len(level), level.shape[1] - most + 1, 1))] if constant else []
    for column, order in ((level, p), (residuals, q)):
        if order:
            parts.append(_lags(np.concatenate([column, np.zeros((len(level), 1))], axis=1), order)[:, most - order :])
    if not parts:
        return (level[:, -judged:] ** 2).sum(axis=1), np.zeros(len(level))
    rows = np.concatenate(parts, axis=2)
    past, target = rows[:, -judged - 1 : -1], level[:, -judged:]
    weights = _solve(past, target)
    errors = target - np.einsum("stk,sk->st", past, weights)
    return (errors**2).sum(axis=1), np.einsum("sk,sk->s", rows[:, -1], weights)


def _lags(columns: FloatArray, order: int) -> FloatArray:
    """series x (time - order) x order: the values before each."""
    time = columns.shape[1]
    return np.stack([columns[:, order - k : time - k] for k in range(1, order + 1)], axis=2)


def _solve(rows: FloatArray, target: FloatArray) -> FloatArray:
    """Least squares of each series, by normal equations: six unknowns at most, and one call for all series."""
    gram = np.einsum("stk,stl->skl", rows, rows)
    size = np.trace(gram, axis1=1, axis2=2) + 1e-9
    gram += (_RIDGE * size)[:, None, None] * np.eye(gram.shape[1])
    return np.asarray(np.linalg.solve(gram, np.einsum("stk,st->sk", rows, target)[:, :, None])[:, :, 0])
