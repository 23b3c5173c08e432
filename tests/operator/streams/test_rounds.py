from __future__ import annotations

import pytest

from tests.operator.streams.small import NOW, NOW_S
from tiphys_models.api.stream_reasons import ProbeRefusal
from tiphys_operator.streams.rounds import KEPT, LEAST, Rounds


def test_one_missed_probe_is_no_news_and_two_in_a_row_are() -> None:
    rounds = Rounds()
    assert rounds.answered(1.0, NOW_S)
    assert not rounds.missed("late")
    assert rounds.reachable
    assert rounds.missed("refused")
    assert (rounds.reachable, rounds.why_missed) == (False, "refused")
    assert not rounds.missed("refused"), "told once"


def test_an_answer_between_two_missed_probes_keeps_a_site_up() -> None:
    rounds = Rounds()
    rounds.answered(1.0, NOW_S)
    for _ in range(5):
        assert not rounds.missed("late")
        assert not rounds.answered(1.0, NOW_S)
    assert rounds.reachable


def test_one_answer_brings_a_site_back() -> None:
    rounds = Rounds()
    rounds.missed("late")
    rounds.missed("late")
    assert rounds.answered(1.0, NOW_S)
    assert rounds.reachable


def test_a_site_is_unknown_until_a_verdict_is_possible() -> None:
    rounds = Rounds()
    assert rounds.reachable is None
    rounds.missed("late")
    assert rounds.reachable is None


def test_one_way_is_half_a_round_trip_with_its_deviation() -> None:
    rounds = Rounds()
    for trip_ms in (8.0, 10.0, 12.0, 10.0, 10.0):
        rounds.answered(trip_ms, NOW_S)
    delay = rounds.delay("a1")
    assert delay is not None
    assert (delay.origin, delay.mean_ms, delay.samples, delay.measured_at) == ("a1", 5.0, 5, NOW)
    assert delay.sigma_ms == pytest.approx(0.707, abs=0.001)


def test_few_answers_are_no_measurement_and_missed_probes_are_no_delays() -> None:
    rounds = Rounds()
    for _ in range(LEAST - 1):
        rounds.answered(10.0, NOW_S)
    rounds.missed("late")
    assert rounds.delay("a1") is None


def test_what_was_measured_long_ago_is_forgotten() -> None:
    rounds = Rounds()
    for trip_ms in [100.0] * KEPT + [10.0] * KEPT:
        rounds.answered(trip_ms, NOW_S)
    delay = rounds.delay("a1")
    assert delay is not None
    assert (delay.mean_ms, delay.sigma_ms, delay.samples) == (5.0, 0.0, KEPT)


def test_a_refusal_is_news_once_and_what_was_measured_before_counts_no_longer() -> None:
    rounds = Rounds()
    for _ in range(LEAST):
        rounds.answered(10.0, NOW_S)
    assert rounds.refuse(ProbeRefusal.LOOPBACK)
    assert not rounds.refuse(ProbeRefusal.LOOPBACK)
    assert rounds.refuse(ProbeRefusal.API_SERVER)
    assert (rounds.delay("a1"), rounds.reachable) == (None, None)
    assert rounds.answered(10.0, NOW_S)
    assert (rounds.refused, rounds.reachable) == (None, True)
