from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.selection.small import state
from tiphys_models.base.arrays import FloatArray
from tiphys_models.selection.planners.arima import SHORTEST, forecast
from tiphys_models.selection.planners.seen import WINDOW, believe, look


def arma(phi: float, theta: float, series: int, length: int) -> tuple[FloatArray, FloatArray]:
    """(series around 0.5, what they were going to be next but for chance)."""
    noise = np.random.default_rng(0).normal(0, 0.05, (series, length + 51))
    x = np.zeros_like(noise)
    for t in range(1, x.shape[1]):
        x[:, t] = phi * x[:, t - 1] + noise[:, t] + theta * noise[:, t - 1]
    ahead = phi * x[:, -2] + theta * noise[:, -2]
    return 0.5 + x[:, 50:], 0.5 + ahead


@pytest.mark.parametrize(("phi", "theta"), [(0.8, 0.0), (0.5, 0.5), (0.0, 0.7), (-0.5, 0.0)])
def test_arima_comes_near_the_best_possible_forecast(phi: float, theta: float) -> None:
    series, best = arma(phi, theta, 300, 100)
    past, came = series[:, :100], series[:, 100]

    def error(guess: FloatArray) -> float:
        return float(((guess - came) ** 2).mean())

    assert error(forecast(past)) < 1.15 * error(best)  # what estimating from 100 values costs
    assert error(forecast(past)) < error(past[:, -1])
    assert error(forecast(past)) < error(past.mean(axis=1))


def test_arima_follows_a_trend_only_by_differences() -> None:
    ramp = np.linspace(0.1, 0.6, 60)[None] + np.random.default_rng(0).normal(0, 1e-4, (1, 60))
    assert forecast(ramp)[0] == pytest.approx(0.6 + 0.5 / 59, abs=2e-3)


def test_short_and_constant_series_stay_where_they_are() -> None:
    assert forecast(np.linspace(0, 1, SHORTEST - 1)[None]).tolist() == [1.0]
    assert forecast(np.full((2, 50), 0.3)).tolist() == [0.3, 0.3]
    assert forecast(np.zeros((3, 0))).tolist() == [0.0, 0.0, 0.0]
    assert forecast(np.zeros((0, 50))).shape == (0,)


def test_a_series_is_forecast_alike_alone_and_among_others() -> None:
    series, _ = arma(0.5, 0.5, 6, 100)
    np.testing.assert_allclose(forecast(series[2:3]), forecast(series)[2:3], atol=1e-9)


def test_forecasters_see_hosts_with_tasks_and_their_past_utilisation() -> None:
    now = state([(0, 0), (0, 0), (2, 5)])
    history = np.zeros((2, 8))
    history[-1, 5] = 0.8
    seen = look(replace(now, history=history))
    assert seen.host.tolist() == [0, 5]
    assert seen.series.shape == (2, WINDOW, 2)
    assert seen.series[1, :, 0].tolist() == [0, 0, 0, 0, 0.8]
    np.testing.assert_allclose(seen.series[0, -1, 1], 0.1)
    # two tasks with 10 core-seconds left each on two cores use all of ten seconds; 20 on a B4ms (4 cores, 2 threads) half
    np.testing.assert_allclose(seen.expected, [1.0, 0.5])
    assert seen.most.tolist() == [1.0, 0.5]
    assert seen.facts.shape == (2, 3)


def test_a_forecast_equal_to_what_is_expected_changes_nothing() -> None:
    now = state([(0, 0), (2, 5), (5, 7)])
    seen = look(now)
    same = believe(now, seen, seen.expected)
    np.testing.assert_allclose(same.running.remaining_core_s, now.running.remaining_core_s)
    less = believe(now, seen, 0.5 * seen.expected)
    np.testing.assert_allclose(less.running.remaining_core_s, 0.5 * now.running.remaining_core_s)


def test_a_forecast_cannot_ask_for_more_than_a_host_s_threads() -> None:
    now = state([(2, 7)])  # one task on eight cores
    believed = believe(now, look(now), np.array([1.0]))
    np.testing.assert_allclose(believed.running.remaining_core_s, now.running.remaining_core_s)
