"""Counters: what happened in a window, whatever happened to the process that counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiphys_operator.scaling.series import Series, newest_s, parse_matrix


def series(*samples: tuple[float, float]) -> Series:
    return Series({}, tuple(t for t, _ in samples), tuple(v for _, v in samples))


def test_growth_is_counted_from_the_last_sample_before_the_window() -> None:
    assert series((0, 10), (5, 12), (10, 20), (15, 21)).increase(5, 15) == 9


def test_a_restarted_process_counts_from_zero_again() -> None:
    assert series((0, 100), (5, 110), (10, 3), (15, 5)).increase(0, 15) == 10 + 3 + 2


def test_a_process_born_in_the_window_counts_in_full_and_an_old_one_first_seen_does_not() -> None:
    new = series((8, 40), (13, 50))
    assert new.increase(0, 15, born_s=4) == 50
    assert new.increase(0, 15, born_s=-100) == 10
    assert new.increase(0, 15) == 10


def test_a_window_without_a_sample_is_unknown_and_not_zero() -> None:
    assert series((0, 10)).increase(5, 15) is None
    assert series((20, 10)).increase(5, 15) is None


def test_a_gauge_has_its_last_value() -> None:
    found = series((0, 3), (5, 7))
    assert (found.at(-1), found.at(4), found.at(5), found.at(99)) == (None, 3, 7, 7)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_what_is_no_count_is_not_usable(value: float) -> None:
    assert not series((0, 1), (5, value)).usable


@settings(deadline=None)
@given(steps=st.lists(st.integers(0, 50), min_size=2, max_size=30), cut=st.integers(1, 28))
def test_windows_side_by_side_lose_and_double_nothing(steps: list[int], cut: int) -> None:
    total, samples = 0.0, []
    for index, step in enumerate(steps):
        total += step
        samples.append((5.0 * index, total))
    found, end = series(*samples), 5.0 * (len(steps) - 1)
    middle = min(5.0 * cut, end)
    both = [found.increase(0, middle), found.increase(middle, end)]
    assert sum(part or 0.0 for part in both) == found.increase(0, end)


def test_an_answer_with_ranges_is_read_and_anything_else_refused() -> None:
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {"le": "1"}, "values": [[5, "2"], [10, "4"]]}]}}
    (found,) = parse_matrix(answer)
    assert (found.labels, found.times_s, found.values) == ({"le": "1"}, (5.0, 10.0), (2.0, 4.0))
    assert newest_s([found]) == 10.0
    assert newest_s([]) is None
    with pytest.raises(ValueError, match="vector"):
        parse_matrix({"status": "success", "data": {"resultType": "vector", "result": []}})
