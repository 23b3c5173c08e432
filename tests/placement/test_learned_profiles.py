"""Profiles learned from calls that ended, and speeds of nodes from what surprised there."""

from __future__ import annotations

import numpy as np
import pytest

from tiphys_models.placement.learned_profiles import (
    COLD_WORK,
    CORES_USED,
    DECLARED_CALLS,
    START_S,
    TYPICAL_CALLS,
    WARM_WORK,
    believe,
    differences,
    learn,
    learn_node,
    least_share_left,
    new_node_rows,
    new_rows,
    speeds,
)

DECLARED = np.array([2.0, 3.0, 6.0, 4.0])


def after(calls: int, *, cold: bool, work: float, start_s: float = 1.0, run_s: float = 1.0, prior: float = DECLARED_CALLS) -> np.ndarray:
    row, believed = new_rows(1)[0], DECLARED
    for _ in range(calls):
        learn(row, believed, cold, start_s, run_s, work)
        believed = believe(row, DECLARED, prior)
    return np.asarray(believed)


def test_before_any_call_what_was_declared_is_believed() -> None:
    assert believe(new_rows(1)[0], DECLARED, DECLARED_CALLS).tolist() == DECLARED.tolist()


def test_a_wrong_declaration_is_forgotten_within_some_tens_of_calls() -> None:
    assert after(40, cold=False, work=1.0)[WARM_WORK] == pytest.approx(1.0, abs=0.3)
    assert after(3, cold=False, work=1.0)[WARM_WORK] == pytest.approx(2.0, abs=0.2), "three calls are worth as much as the declaration"


def test_what_is_only_usual_elsewhere_is_forgotten_after_one_call() -> None:
    assert after(1, cold=False, work=1.0, prior=TYPICAL_CALLS)[WARM_WORK] == pytest.approx(1.67, abs=0.01)


def test_a_release_is_believed_after_fifty_calls() -> None:
    row, believed = new_rows(1)[0], DECLARED
    for work in (*[3.0] * 200, *[1.5] * 50):
        learn(row, believed, False, 0.0, 1.0, work)
        believed = believe(row, DECLARED, DECLARED_CALLS)
    assert believed[WARM_WORK] == pytest.approx(1.5, abs=0.35)


def test_a_warm_call_is_never_believed_to_be_dearer_than_a_cold_one_of_which_only_cold_ones_were_seen() -> None:
    believed = after(30, cold=True, work=1.0)
    assert believed[WARM_WORK] <= believed[COLD_WORK] < 2.0


def test_starts_are_learned_from_cold_calls_only() -> None:
    assert after(50, cold=True, work=6.0, start_s=5.0)[START_S] > 4.0
    assert after(50, cold=False, work=3.0, start_s=0.0)[START_S] == DECLARED[START_S]


def test_more_cores_are_believed_at_once_and_fewer_slowly() -> None:
    assert after(5, cold=False, work=8.0, run_s=1.0)[CORES_USED] > 7.0
    assert after(5, cold=False, work=1.0, run_s=1.0)[CORES_USED] > 3.0


def test_how_much_is_left_grows_with_how_much_calls_vary() -> None:
    rng, shares = np.random.default_rng(1), []
    for variation in (0.1, 1.0, 3.0):
        rows = new_rows(1)
        for draw in np.exp(rng.normal(0, np.sqrt(np.log1p(variation**2)), 400)):
            learn(rows[0], DECLARED, False, 0.0, 0.0, 3.0 * draw)
        shares.append(least_share_left(rows))
    assert shares == sorted(shares)
    assert shares[0] == least_share_left(new_rows(1)) == 0.6
    assert shares[-1] == 0.75


def surprised(speed_of: np.ndarray, calls: int, spread: float = 0.3) -> np.ndarray:
    rng, nodes, rows = np.random.default_rng(2), new_node_rows(len(speed_of)), new_rows(1)
    for _ in range(10):
        learn(rows[0], DECLARED, False, 0.0, 0.0, 3.0)
    for index in range(calls * len(speed_of)):
        node = index % len(speed_of)
        work = 3.0 * float(np.exp(rng.normal(0, spread)))
        learn_node(nodes[node], rows[0], DECLARED, False, work / speed_of[node])
        learn(rows[0], DECLARED, False, 0.0, 0.0, work)
    return np.asarray(speeds(nodes, differences(nodes, rows)))


def test_nodes_that_are_alike_are_believed_to_be() -> None:
    assert surprised(np.ones(10), 20).tolist() == [1.0] * 10


def test_generations_of_nodes_are_told_apart() -> None:
    truth = np.array([0.7, 1.0, 1.0, 1.3] * 3)
    found = surprised(truth, 60)
    assert np.corrcoef(found, truth)[0, 1] > 0.95
    assert found[truth == 1.3].mean() / found[truth == 0.7].mean() == pytest.approx(1.3 / 0.7, rel=0.15)


def test_functions_that_nobody_knows_yet_say_nothing_of_a_node() -> None:
    nodes = new_node_rows(1)
    learn_node(nodes[0], new_rows(1)[0], DECLARED, False, 100.0)
    assert not nodes.any()
