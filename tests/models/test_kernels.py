"""The arithmetic that is served and the arithmetic that is compiled are one."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import GIB, request, state, view
from tiphys_models.placement import kernels
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.encoder import ENCODERS, encode, encode_outlook
from tiphys_models.placement.outlook import OUTLOOK, SCHEMA_OUTLOOK, WIDTH
from tiphys_models.placement.schema import FEATURES
from tiphys_models.placement.state import PlacementState

PROFILE = FunctionProfile(1.0, 4.0, 2.0, 6.0, 2.0)


def column(filled: PlacementState, name: str) -> list[float]:
    index = len(FEATURES) + [n for n, _, _ in OUTLOOK].index(name)
    return [float(x) for x in encode_outlook(view(filled))[:, index]]


def ready(nodes: int = 2) -> PlacementState:
    filled = state(nodes, memory_bytes=2 * GIB)
    filled.put_profiles({"default/f": PROFILE, "default/g": PROFILE})
    filled.tick(10.0)
    return filled


def test_scaled_terms_lie_between_zero_and_one_and_missing_ones_in_the_middle() -> None:
    assert kernels.scaled(np.array([3.0, 5.0, 4.0])).tolist() == [0.0, 1.0, 0.5]
    assert kernels.scaled(np.array([3.0, np.nan, 5.0])).tolist() == [0.0, 0.5, 1.0]
    assert kernels.scaled(np.array([2.0, 2.0])).tolist() == [0.5, 0.5]
    assert kernels.scaled(np.array([np.nan, np.nan])).tolist() == [0.5, 0.5]


def test_the_first_26_inputs_are_the_paper_s() -> None:
    filled = ready()
    np.testing.assert_array_equal(encode_outlook(view(filled))[:, : len(FEATURES)], encode(view(filled)))
    assert ENCODERS[SCHEMA_OUTLOOK][0] == WIDTH == 42


def test_work_left_fades_with_the_age_of_the_calls() -> None:
    filled = ready()
    filled.decided(request("a"), "n0", 10.0)
    assert column(filled, "work_left") == pytest.approx([6.0 / 8, 0.0])
    filled.tick(14.0)  # as long as a cold call takes alone
    assert column(filled, "work_left") == pytest.approx([6.0 / 8 * np.exp(-1), 0.0])
    filled.finished("a")
    assert column(filled, "work_left") == [0.0, 0.0]


def test_an_idle_instance_makes_the_call_shorter_and_is_taken_by_it() -> None:
    filled = ready()
    filled.put_idle({"default/f": {"n0": 1.0, "n1": 0.0}}, 9.0)
    assert column(filled, "alone_s") == [1.0, 4.0]
    assert column(filled, "warm_elsewhere") == [1.0, 1.0]
    filled.decided(request("a"), "n0", 10.0)
    assert column(filled, "alone_s") == [4.0, 4.0]
    assert column(filled, "work_left") == pytest.approx([2.0 / 8, 0.0])  # it was warm when it was placed
    assert column(filled, "same_inflight") == [1.0, 0.0]


def test_without_profiles_the_inputs_that_need_one_are_missing_not_zero() -> None:
    filled = state(2)
    filled.tick(1.0)
    filled.decided(request("a"), "n0", 1.0)
    assert np.isnan(column(filled, "alone_s")).all()
    assert np.isnan(column(filled, "work_left")).any()
    assert column(filled, "same_inflight") == [1.0, 0.0]


def test_a_function_nobody_profiled_is_taken_as_a_typical_one() -> None:
    filled = ready()
    filled.decided(request("a", function="default/unknown"), "n0", 10.0)
    assert column(filled, "work_left") == pytest.approx([6.0 / 8, 0.0])


def test_calls_follow_their_node_when_it_goes_and_comes_back() -> None:
    filled = ready(3)
    filled.decided(request("a"), "n1", 10.0)
    filled.drop_node("n1")
    assert column(filled, "same_inflight") == [0.0, 0.0]
    from tests.builders import node

    filled.put_node(node("n9"))  # takes the free row
    assert column(filled, "same_inflight") == [0.0, 0.0, 0.0]
    filled.put_node(node("n1"))
    assert column(filled, "same_inflight") == [0.0, 1.0, 0.0, 0.0]
