import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_models.lab.report import Claim, Result, Trivial, median, percentile


def result(*claims: Claim) -> Result:
    return Result("placement", False, (0, 1), 1.26, {"a": 1}, [{"x": 1}], [{"mean": 1.0}], claims)


def test_the_object_has_the_keys_that_checks_read() -> None:
    made = result(Claim("faster", 70.1, 72, "<=")).as_json()
    assert list(made) == ["bench", "version", "quick", "seeds", "wall_seconds", "inputs", "rows", "summary", "claims"]
    assert made["claims"] == [{"id": "faster", "value": 70.1, "bound": "<= 72", "holds": True}]
    assert made["wall_seconds"] == 1.3
    json.dumps(made)


@pytest.mark.parametrize(
    ("value", "limit", "direction", "holds"),
    [
        (5, 5, "<=", True),
        (5.1, 5, "<=", False),
        (5, 5, ">=", True),
        (4.9, 5, ">=", False),
        (None, 5, "<=", False),
        (math.nan, 5, ">=", False),
    ],
)
def test_a_claim_holds_at_its_bound_and_never_without_a_value(value: float | None, limit: float, direction: str, holds: bool) -> None:
    assert Claim("c", value, limit, "<=" if direction == "<=" else ">=").holds is holds


def test_a_result_holds_only_if_all_claims_do() -> None:
    assert result(Claim("a", 1, 2, "<="), Claim("b", 3, 2, ">=")).holds
    assert not result(Claim("a", 1, 2, "<="), Claim("b", 1, 2, ">=")).holds


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200), st.floats(1, 100))
def test_a_percentile_is_a_measured_value_that_enough_others_do_not_exceed(values: list[float], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9
    assert sum(value < found for value in values) < len(values) * percent / 100 + 1e-9


def test_the_99th_percentile_of_100_calls_is_the_second_slowest() -> None:
    assert percentile(list(range(1, 101)), 99) == 99
    assert percentile(list(range(1, 101)), 50) == 50


def test_a_claim_that_the_trivial_policy_passes_is_void_and_printed_all_the_same() -> None:
    void = Claim("c", 3, 5, "<=", Trivial("warm-first", 4))
    assert (void.holds, void.void, void.verdict) == (True, True, "holds; void: warm-first passes")
    assert void.as_json()["trivial"] == {"policy": "warm-first", "value": 4}
    earned = Claim("c", 3, 5, "<=", Trivial("warm-first", 6))
    assert (earned.holds, earned.void, earned.verdict) == (True, False, "holds")
    assert not Claim("c", 3, 5, "<=", Trivial("warm-first", None)).void


def test_what_is_not_finite_is_null() -> None:
    assert json.loads(json.dumps(Claim("c", math.inf, 5, "<=").as_json()))["value"] is None


def test_nothing_measured_has_no_median_and_no_percentile() -> None:
    assert median([]) is None
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)
