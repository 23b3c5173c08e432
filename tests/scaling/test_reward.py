from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.scaling.reward import GRADED, POD_PRICE, bill, late_with, pain, reward

share = st.floats(0, 1)
millicores = st.floats(1, 1e5)


def test_the_bill_is_cores_and_pods() -> None:
    assert float(bill(3, 200)) == pytest.approx(0.6 + 3 * POD_PRICE)


def test_a_violation_hurts_at_once_and_each_late_request_a_little_more() -> None:
    assert float(pain(0.1)) == pytest.approx(GRADED * 0.1)
    assert float(pain(0.2)) == pytest.approx(1 - GRADED + GRADED * 0.2)
    assert float(pain(1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("price", [0.3, 12.0, 200.0])
def test_a_kept_window_at_usual_cost_and_a_violated_free_one_weigh_as_the_price_says(price: float) -> None:
    assert float(reward(0.0, 1.0, price)) == pytest.approx(price * float(reward(1.0, 0.0, price)))


@given(late=share, had=millicores, needed=millicores)
def test_the_same_capacity_is_as_late(late: float, had: float, needed: float) -> None:
    assert late_with(had, late, had, needed) == late


@given(late=share, had=millicores, needed=millicores, first=millicores, second=millicores)
def test_more_capacity_is_never_later(late: float, had: float, needed: float, first: float, second: float) -> None:
    small, large = sorted((first, second))
    assert 0 <= late_with(large, late, had, needed) <= late_with(small, late, had, needed) + 1e-9 <= 1 + 1e-9


def test_enough_capacity_would_have_kept_what_too_little_did_not() -> None:
    assert late_with(110, 0.8, 50, 100) == 0
    assert late_with(75, 0.8, 50, 100) == pytest.approx(0.4)
    assert late_with(60, 0.0, 100, 100) == pytest.approx(0.4)
    assert late_with(200, 0.3, 150, 100) == 0.3, "both had enough: what made requests late was something else"
