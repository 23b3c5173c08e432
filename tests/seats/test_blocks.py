"""Two groups by blocks of time: what counts, and when a difference is more than chance."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scipy import stats

from tiphys_models.seats.blocks import GroupSums, MeasuredBlock, _t_95, difference


def played(means: list[float], spread: float = 0.0, windows: int = 5) -> GroupSums:
    sums, rng = GroupSums(), np.random.default_rng(0)
    for number, mean in enumerate(means):
        for _ in range(windows):
            sums = sums.adding(number, MeasuredBlock(1, mean + spread * float(rng.normal()), 2.0, 0.1))
    return sums


def test_means_are_of_units_and_the_error_is_of_blocks() -> None:
    means = [1.0, 2.0, 4.0, 3.0, 2.5, 7.0]
    sums = played(means)
    assert sums.units == 30
    assert sums.mean == pytest.approx(statistics.mean(means))
    assert sums.standard_error == pytest.approx(statistics.stdev(means) / 6**0.5)
    assert [sums.cost, sums.late] == pytest.approx([60.0, 3.0])


def test_nothing_measured_is_no_mean_and_no_error() -> None:
    assert (GroupSums().mean, GroupSums().standard_error, played([1.0]).standard_error) == (None, None, None)


def test_windows_of_few_blocks_say_nothing_however_many_they_are() -> None:
    few, many = played([1.0, 1.1, 1.2], windows=500), played([0.0] * 10)
    assert difference(few, many, more_is_better=True).result == "TooEarly"
    assert difference(GroupSums(), many, more_is_better=True).difference is None


@pytest.mark.parametrize(("more_is_better", "result"), [(True, "Better"), (False, "Worse")])
def test_a_clear_difference_is_told_by_what_is_better(more_is_better: bool, result: str) -> None:
    found = difference(played([2.0, 2.1, 1.9, 2.0, 2.05]), played([1.0, 1.1, 0.9, 1.0, 1.02]), more_is_better=more_is_better)
    assert found.result == result
    assert found.difference == pytest.approx(1.006)


def test_equal_groups_differ_by_chance_alone_about_once_in_twenty() -> None:
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(400):
        a, b = (played(rng.normal(size=8).tolist(), windows=1) for _ in range(2))
        wrong += difference(a, b, more_is_better=True).result != "NoDifferenceFound"
    assert 2 <= wrong <= 30


def test_outcomes_that_come_late_find_their_block() -> None:
    in_order, late = GroupSums(), GroupSums()
    for number in (1, 1, 2, 2, 3):
        in_order = in_order.adding(number, MeasuredBlock(1, float(number), 0.0, 0.0))
    for number in (1, 2, 3, 2, 1):
        late = late.adding(number, MeasuredBlock(1, float(number), 0.0, 0.0))
    assert late == in_order


def test_what_comes_after_its_block_was_closed_counts_in_the_mean_only() -> None:
    sums = played([1.0] * 9)
    later = sums.adding(0, MeasuredBlock(1, 46.0, 0.0, 0.0))
    assert later.mean == pytest.approx(91 / 46)
    assert (later.standard_error, later.all_closed().blocks) == (0.0, 9)


def test_blocks_without_an_outcome_are_not_counted() -> None:
    assert GroupSums().adding(3, MeasuredBlock(0, 0.0, 0.0, 0.0)).all_closed().blocks == 0


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 10, 11, 15, 20, 40, 200])
def test_the_quantile_is_students(freedom: int) -> None:
    exact = float(stats.t.ppf(0.975, freedom))
    assert exact - 1e-3 <= _t_95(freedom) <= exact * 1.005
