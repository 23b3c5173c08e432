"""What is learned from window to window: CPU a request, headroom, delays."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.scaling.control import Control, Learned, WindowReading, step
from tiphys_models.scaling.headroom import AFTER, LEAST, LEAST_BLIND, MOST, START, Headroom, WindowOutcome, controlled, predicted
from tiphys_models.scaling.request_cpu import ENOUGH, RequestCPU, learned
from tiphys_models.scaling.standing import Delays, rate_after_jumps, stands

TRUE_MS = 1 / 0.6


def windows(known: RequestCPU, count: int, cpu_ms: float = TRUE_MS, completed: float = 3000.0, noise: float = 0.0) -> RequestCPU:
    rng = np.random.default_rng(1)
    for _ in range(count):
        known = learned(known, completed * cpu_ms * (1 + noise * float(rng.normal())), completed)
    return known


@pytest.mark.parametrize("believed", [0.7, 0.85, 1.15, 1.3])
def test_one_window_with_enough_requests_replaces_what_was_believed(believed: float) -> None:
    known = learned(RequestCPU(TRUE_MS * believed), 100 * TRUE_MS, 100.0)
    assert known.cpu_ms == pytest.approx(TRUE_MS)
    assert known.measured


def test_few_requests_prove_nothing_until_they_are_enough_together() -> None:
    known = learned(RequestCPU(1.0), 10 * TRUE_MS, ENOUGH / 3)
    assert (known.cpu_ms, known.measured) == (1.0, False)
    assert windows(known, 4, completed=ENOUGH / 3).cpu_ms == pytest.approx(TRUE_MS)


def test_a_release_is_known_after_two_windows_and_told_once() -> None:
    known = windows(RequestCPU(1.0), 20, noise=0.01)
    first = learned(known, 3000 * TRUE_MS * 1.2, 3000.0)
    assert not first.jumped
    assert first.cpu_ms < 1.1 * TRUE_MS
    second = learned(first, 3000 * TRUE_MS * 1.2, 3000.0)
    assert second.jumped
    assert second.cpu_ms == pytest.approx(1.2 * TRUE_MS)
    assert not learned(second, 3000 * TRUE_MS * 1.2, 3000.0).jumped


def test_noise_is_no_release() -> None:
    known = RequestCPU(1.0)
    rng = np.random.default_rng(2)
    for _ in range(300):
        known = learned(known, 200 * TRUE_MS * (1 + 0.05 * float(rng.normal())), 200.0)
        assert not known.jumped
    assert known.cpu_ms == pytest.approx(TRUE_MS, rel=0.05)


def test_the_first_window_of_a_release_does_not_hide_the_second() -> None:
    known = windows(RequestCPU(1.0), 20)
    once = learned(known, 3000 * TRUE_MS * 2, 3000.0)
    assert math.sqrt(once.variance) < 0.04
    assert learned(once, 3000 * TRUE_MS * 2, 3000.0).jumped


@pytest.mark.parametrize(("used_ms", "completed"), [(None, 100.0), (0.0, 100.0), (5.0, 0.0), (math.nan, 10.0), (math.inf, 10.0)])
def test_a_window_without_a_reading_says_nothing(used_ms: float | None, completed: float) -> None:
    known = windows(RequestCPU(1.0), 5)
    assert learned(known, used_ms, completed) == replace(known, jumped=False)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e6)), max_size=40))
def test_a_learned_number_is_finite_and_positive(read: list[tuple[float, float]]) -> None:
    known = RequestCPU(1.5)
    for used_ms, completed in read:
        known = learned(known, used_ms, completed)
        assert known.cpu_ms > 0
        assert all(math.isfinite(value) for value in asdict(known).values())


def missed(rate: float = 100.0, **changed: object) -> WindowOutcome:
    return replace(WindowOutcome(True, rate, 100.0), **changed)  # type: ignore[arg-type]


def test_headroom_settles_where_the_tolerated_share_is_missed() -> None:
    rng, known, lost = np.random.default_rng(3), Headroom(), 0
    for window in range(6000):
        need = math.exp(0.2 * float(rng.normal()))
        late = need > known.value
        known = controlled(known, WindowOutcome(late, 100.0, 100.0), 0.97)
        lost += late and window >= 1000
    assert lost / 5000 == pytest.approx(0.03, abs=0.004)


def test_a_miss_costs_seven_percent_and_good_windows_take_it_back_slowly() -> None:
    up = controlled(Headroom(), missed()).value
    assert up / START == pytest.approx(1.07, abs=0.003)
    down = controlled(Headroom(), WindowOutcome(False, 100.0, 100.0)).value
    assert down / START == pytest.approx(1 - 0.00105, abs=1e-5)


def test_no_miss_counts_in_a_jump_nor_in_the_two_windows_after_it() -> None:
    known = controlled(Headroom(), missed(rate=200.0))
    assert known.exempt == AFTER
    for _ in range(AFTER):
        known = controlled(known, missed())
    assert known.value < START
    assert known.excused == 1.0
    assert controlled(known, missed()).value > START


def test_excused_misses_are_a_share_of_the_windows_seen_and_then_of_the_last_ones() -> None:
    known = Headroom()
    for window in range(100):
        known = controlled(known, WindowOutcome(window == 50, 200.0 if window == 50 else 100.0, 100.0))
    assert known.excused == pytest.approx(0.01)
    for _ in range(2000):
        known = controlled(known, WindowOutcome(False, 100.0, 100.0))
    assert known.excused < 1e-4
    assert known.windows == 240


def test_a_release_is_not_paid_twice() -> None:
    known = Headroom(1.1)
    for _ in range(3):
        known = controlled(known, missed())
    assert known.value > 1.3
    back = controlled(known, missed(cpu_jumped=True))
    assert back.value == pytest.approx(1.1)
    assert controlled(back, missed()).value < 1.11


def test_where_cpu_is_never_measured_headroom_makes_up_for_what_is_believed() -> None:
    known = Headroom(LEAST)
    for _ in range(400):
        known = controlled(known, WindowOutcome(False, 100.0, 100.0, blind=True), 0.985)
    assert known.value == pytest.approx(LEAST_BLIND)
    assert controlled(known, missed(blind=True)).value / known.value == pytest.approx(math.exp(0.1 * 0.985))


@given(st.lists(st.sampled_from([True, False, None]), max_size=80))
def test_headroom_stays_within_its_bounds(read: list[bool | None]) -> None:
    known = Headroom()
    for late in read:
        known = controlled(known, WindowOutcome(late, 100.0, 100.0))
        assert LEAST <= known.value <= MOST
        assert len(known.former) <= 4


def test_what_is_predicted_follows_a_rise_and_no_fall() -> None:
    assert predicted([100.0, 120.0], 0.25) == 125.0
    assert predicted([120.0, 100.0], 0.25) == 100.0
    assert predicted([100.0], 0.25) == 100.0
    assert predicted([math.nan, 100.0], 0.25) == 100.0
    assert math.isnan(predicted([], 0.25))


def test_a_jump_is_remembered_and_chance_is_none() -> None:
    rates = np.array([[100.0] * 10 + [100.0, 500.0, 600.0, 100.0], [5.0, 8.0, 5.0, 7.5] * 3 + [5.0, 8.0], [0.0] * 14])
    assert rate_after_jumps(rates, 15.0).tolist() == [500.0, 0.0, 0.0]
    long_ago = np.concatenate([rates[:1], np.full((1, 300), 100.0)], axis=1)
    assert rate_after_jumps(long_ago, 15.0).tolist() == [0.0]


def test_pods_stand_by_where_a_new_one_would_be_late() -> None:
    assert not stands(Delays(6.0), 15.0)
    assert stands(Delays(30.0), 15.0)
    assert stands(Delays(6.0, lag_s=15.0), 15.0)
    assert not stands(Delays(), 15.0)
    assert Delays().started(5.0).started(10.0).start_s == pytest.approx(6.0)


def test_pods_stand_by_where_jumps_take_more_windows_than_may_be_missed() -> None:
    known = Learned(RequestCPU(1.0), Headroom(excused=0.02), Delays(5.0))
    assert known.stands(Control(), 15.0)
    assert not known.stands(Control(objective=0.97), 15.0)
    assert not known.stands(Control(standing=False), 15.0)
    assert Learned(RequestCPU(1.0)).stands(Control(standing=True), 15.0)


def test_one_step_learns_both_and_can_leave_headroom_alone() -> None:
    reading = WindowReading(15.0, 100.0, 1500.0, 0.3, 100.0 * TRUE_MS, (100.0, 100.0))
    known = step(Learned(RequestCPU(1.0)), reading, Control(), 0.9)
    assert known.request.cpu_ms == pytest.approx(TRUE_MS)
    assert known.headroom.value > START
    assert step(Learned(RequestCPU(1.0)), reading, Control(headroom=False), 0.9).headroom == Headroom()
    unmeasured = step(Learned(RequestCPU(1.0)), replace(reading, late=None, used_cpu_m=None), Control(), 0.9)
    assert (unmeasured.request.cpu_ms, unmeasured.headroom.value) == (1.0, START)
