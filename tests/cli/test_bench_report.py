import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiphys_cli.bench.plots import Bars, svg
from tiphys_cli.bench.report import Claim, Result, interval, median, percentile


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


def test_an_interval_is_the_same_each_time_and_holds_the_mean() -> None:
    values = [1.0, 2.0, 3.0, 10.0]
    first, second = interval(values), interval(values)
    assert first == second
    assert first.ci95_low < first.mean == 4.0 < first.ci95_high
    assert interval([7.0]).as_json() == {"mean": 7.0, "ci95_low": 7.0, "ci95_high": 7.0, "n": 1}


def test_nothing_measured_has_no_median_and_no_percentile() -> None:
    assert median([]) is None
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 50)


def test_a_plot_names_its_values_and_escapes_its_texts() -> None:
    picture = svg(Bars("a < b", "ms", ["10 names", "100 names"], [("ours", [0.5, None]), ("floor", [0.25, 0.3])]))
    assert picture.startswith("<svg ")
    assert "a &lt; b" in picture
    assert "10 names, ours: 0.5 ms" in picture
    assert picture.count("<rect") == 1 + 2 + 3  # background, keys, bars that have a value
