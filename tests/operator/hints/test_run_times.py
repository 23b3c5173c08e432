"""Run times of pods that ended: from three on, of the last ones, of so many applications."""

from __future__ import annotations

import math

from tiphys_operator.hints.run_times import RunTimes


def test_nothing_is_said_of_fewer_than_three_pods() -> None:
    times = RunTimes()
    for run_s in (10.0, 20.0):
        times.ended("shop/encode", run_s)
    assert times.of("shop/encode") is None
    times.ended("shop/encode", 15.0)
    assert times.of("shop/encode") == 20.0
    assert times.of("shop/other") is None


def test_nine_in_ten_took_no_longer() -> None:
    times = RunTimes()
    for run_s in range(1, 21):
        times.ended("a", float(run_s))
    assert times.of("a") == 19.0


def test_only_the_last_pods_count() -> None:
    times = RunTimes()
    for run_s in [1000.0] * 100 + [10.0] * 64:
        times.ended("a", run_s)
    assert times.of("a") == 10.0


def test_applications_are_bounded_and_the_one_that_ended_longest_ago_goes_first() -> None:
    times = RunTimes(most_applications=2)
    for name in ("a", "a", "a", "b", "b", "b", "a", "c", "c", "c"):
        times.ended(name, 5.0)
    assert len(times) == 2
    assert (times.of("a"), times.of("b"), times.of("c")) == (5.0, None, 5.0)


def test_times_that_no_clock_measured_teach_nothing() -> None:
    times = RunTimes()
    for run_s in (0.0, -5.0, math.nan, math.inf):
        times.ended("a", run_s)
    times.ended("", 5.0)
    assert len(times) == 0
