from __future__ import annotations

import numpy as np
import pytest

from tests.scaling.states import state
from tiphys_models.scaling.recurrence import recurrence
from tiphys_models.scaling.seen import seen_of


def jumps(period: float, phase: float, windows: int, length: float = 6.0, low: float = 150.0, high: float = 800.0) -> list[float]:
    """Mean rates of windows, a jump covering its exact part of each."""
    fine = np.arange(windows * 100) / 100
    inside = ((fine - phase) % period < length) & (fine >= phase)
    noise = np.random.default_rng(3).normal(0, 4, windows)
    return [float(r) for r in np.where(inside, high, low).reshape(windows, 100).mean(axis=1) + noise]


@pytest.mark.parametrize(("period", "phase"), [(24.0, 5.0), (27.4, 11.7), (33.8, 20.3)])
def test_the_fourth_jump_is_expected_to_the_window_and_its_end_too(period: float, phase: float) -> None:
    rates = jumps(period, phase, round(phase + 4 * period + 15))
    wrong = 0
    for now in range(int(phase + 2 * period + 8), len(rates) - 1):
        found = recurrence(seen_of([state(*rates[:now])]))
        assert found.confidence[0] > 0
        covered = found.rate[0] > 0.9 * rates[now]
        wasteful = found.rate[0] > 1.5 * rates[now] and max(rates[max(now - 1, 0) : now + 2]) < 400
        wrong += int(not covered) + int(wasteful)
    assert wrong <= 1


def test_three_jumps_are_a_promise_if_the_last_two_are_alike() -> None:
    rates = jumps(24.0, 5.0, 72)
    assert recurrence(seen_of([state(*rates)])).confidence[0] == 0.5
    higher = [1.5 * r if 52 <= i < 60 and r > 400 else r for i, r in enumerate(rates)]
    longer = [rates[54] if 53 <= i < 64 else r for i, r in enumerate(rates)]
    for unlike in (rates[:48], higher, longer):
        assert recurrence(seen_of([state(*unlike)])).confidence[0] == 0


def test_the_lean_rate_leaves_out_a_window_of_which_a_jump_fills_only_a_small_part() -> None:
    for phase, fills in ((5.7, False), (5.3, True)):
        rates = jumps(24.0, phase, 5 + 4 * 24)
        found = recurrence(seen_of([state(*rates)]))
        assert found.rate[0] > 700
        assert (found.lean[0] > 700) == fills


def test_random_jumps_are_not_believed_in() -> None:
    rng = np.random.default_rng(0)
    believed = 0
    for _ in range(100):
        rates = np.full(240, 150.0)
        for start in np.sort(rng.uniform(0, 230, 4)).astype(int):
            rates[start : start + int(rng.uniform(4, 16))] = 800.0
        believed += recurrence(seen_of([state(*rates.tolist())])).confidence[0] > 0
    assert believed <= 15


@pytest.mark.parametrize(
    "rates", [[300.0] * 60, list(np.linspace(100, 900, 120)), [5.0, 9.0, 4.0, 7.0] * 30, [float("nan")] * 10 + [200.0]]
)
def test_smooth_and_sparse_loads_have_no_jumps(rates: list[float]) -> None:
    found = recurrence(seen_of([state(*rates)]))
    assert np.isnan(found.rate[0])
    assert found.jumps[0] == 0
