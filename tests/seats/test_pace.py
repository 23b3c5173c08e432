from __future__ import annotations

import pytest

from tiphys_models.base.clock import ManualClock
from tiphys_models.seats.pace import OVERRUNS, REST_S, Pace, TooSlow


def taking(clock: ManualClock, seconds: float) -> str:
    clock.advance(seconds)
    return "answer"


def paced() -> tuple[Pace, ManualClock]:
    clock = ManualClock()
    return Pace(0.025, clock.monotonic_s), clock


def test_quick_answers_are_passed_on() -> None:
    pace, clock = paced()
    assert [pace.run(lambda: taking(clock, 0.02)) for _ in range(100)] == ["answer"] * 100


def test_overruns_in_a_row_set_a_decider_aside_for_a_while() -> None:
    pace, clock = paced()
    for _ in range(OVERRUNS):
        assert pace.run(lambda: taking(clock, 0.1)) == "answer"
    with pytest.raises(TooSlow, match="more than 25 ms"):
        pace.run(lambda: taking(clock, 0.0))
    clock.advance(REST_S)
    assert pace.run(lambda: taking(clock, 0.1)) == "answer"
    assert pace.run(lambda: taking(clock, 0.0)) == "answer", "it begins anew"


def test_a_quick_answer_between_overruns_forgives_them() -> None:
    pace, clock = paced()
    for _ in range(5):
        for seconds in (*[0.1] * (OVERRUNS - 1), 0.0):
            assert pace.run(lambda seconds=seconds: taking(clock, seconds)) == "answer"  # type: ignore[misc]


def test_an_answer_that_raises_is_passed_on_as_it_is() -> None:
    pace, _ = paced()

    def fails() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        pace.run(fails)


def test_a_decider_that_takes_long_before_it_raises_is_set_aside_too() -> None:
    pace, clock = paced()

    def fails() -> str:
        clock.advance(5.0)
        raise KeyError("x")

    for _ in range(OVERRUNS):
        with pytest.raises(KeyError):
            pace.run(fails)
    with pytest.raises(TooSlow):
        pace.run(lambda: taking(clock, 0.0))
