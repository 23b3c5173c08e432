from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.lab.intervals import FloatArray, Interval, bca, interval, of_statistic, over_training_seeds, t_quantile

stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 9.5, 19, 29, 100, 1000])
def test_quantiles_are_students_t(freedom: float) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-8)


def test_an_interval_of_a_mean_is_students_t() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    low, high = stats.t.interval(0.95, 4, loc=3.0, scale=stats.sem(values))
    found = interval(values)
    assert (found.mean, found.n) == (3.0, 5)
    assert [found.ci95_low, found.ci95_high] == pytest.approx([low, high])


def test_one_measurement_has_no_interval() -> None:
    assert interval([7.0]) == Interval(7.0, -math.inf, math.inf, 1)
    assert interval([7.0]).as_json() == {"mean": 7.0, "ci95_low": None, "ci95_high": None, "n": 1}
    with pytest.raises(ValueError, match="at least one"):
        interval([])


def test_an_interval_holds_the_true_mean_as_often_as_it_says_also_of_three_seeds() -> None:
    rng = np.random.default_rng(4)
    found = [interval(rng.normal(size=3).tolist()) for _ in range(4000)]
    assert np.mean([i.ci95_low <= 0 <= i.ci95_high for i in found]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("seed", range(4))
def test_bca_agrees_with_scipys_bootstrap(seed: int) -> None:
    values = np.random.default_rng(seed).gamma(1.5, size=24)  # skewed, so that bias and acceleration count
    theirs = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=20_000, rng=np.random.default_rng(0)).confidence_interval
    mine = bca(lambda rows: float(values[rows].mean()), len(values), resamples=20_000)
    assert mine.ci95_low == pytest.approx(theirs.low, rel=0.02)
    assert mine.ci95_high == pytest.approx(theirs.high, rel=0.02)


def test_bca_of_a_ratio_of_sums_is_not_the_mean_of_ratios() -> None:
    rng = np.random.default_rng(1)
    top, bottom = rng.uniform(1, 2, 30), rng.uniform(1, 9, 30)
    found = bca(lambda rows: float(top[rows].sum() / bottom[rows].sum()), 30)
    assert found.mean == top.sum() / bottom.sum()
    assert found.ci95_low < found.mean < found.ci95_high
    assert found == bca(lambda rows: float(top[rows].sum() / bottom[rows].sum()), 30)


def test_a_statistic_that_some_samples_do_not_have_has_an_open_interval() -> None:
    def statistic(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        return 1.0 if 0 in rows else math.inf

    for n in (5, 25):
        assert of_statistic(statistic, n) == Interval(1.0, -math.inf, math.inf, n)


def test_of_a_mean_of_few_the_jackknife_is_students_t() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    mine, theirs = of_statistic(lambda rows: float(values[rows].mean()), 5), interval(values.tolist())
    assert [mine.ci95_low, mine.ci95_high] == pytest.approx([theirs.ci95_low, theirs.ci95_high])


def _crossed(trained: int, n: int, of_training: float, rng: np.random.Generator) -> FloatArray:
    return np.asarray(of_training * rng.normal(size=(trained, 1)) + rng.normal(size=(1, n)) + 0.5 * rng.normal(size=(trained, n)))


def test_training_seeds_that_differ_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    alike, different = (_crossed(3, 20, of_training, np.random.default_rng(2)) for of_training in (0.0, 2.0))
    pooled = interval(different.ravel().tolist())
    mine = over_training_seeds(different)
    assert mine.mean == pytest.approx(different.mean())
    assert mine.ci95_high - mine.ci95_low > 3 * (pooled.ci95_high - pooled.ci95_low)
    assert over_training_seeds(alike).ci95_high - over_training_seeds(alike).ci95_low < 2.0
    one = rng.normal(size=(1, 9))
    assert over_training_seeds(one) == interval(one[0].tolist())


@pytest.mark.parametrize("of_training", [0.0, 0.5, 2.0])
def test_intervals_over_training_seeds_hold_the_true_mean_about_as_often_as_they_say(of_training: float) -> None:
    rng = np.random.default_rng(3)
    found = [over_training_seeds(_crossed(3, 10, of_training, rng)) for _ in range(1500)]
    assert 0.92 < np.mean([i.ci95_low <= 0 <= i.ci95_high for i in found]) < 0.98


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30))
def test_an_interval_is_the_same_each_time_and_holds_the_mean(values: list[float]) -> None:
    found = interval(values)
    assert found == interval(values)
    assert found.ci95_low <= found.mean <= found.ci95_high
