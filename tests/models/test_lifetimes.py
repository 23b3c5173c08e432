"""How long pods live, as it is learned and as it decides."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import GIB, node, pod, read, request, state, view
from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement import lifetimes
from tiphys_models.placement.lifetimes import AHEAD_S, BINS, EDGES_S, POINTS, SPANS_S
from tiphys_models.placement.lives import REFRESH_S
from tiphys_models.placement.registry import make_policy
from tiphys_models.placement.state import PlacementState, StateLimits

HOUR_S = 3600.0
LONG_AGO = 1_000_000.0


def learned(*lives_s: float) -> tuple[FloatArray, FloatArray]:
    """Ends and pods at risk of the pool and one application whose pods lived so long."""
    ends, at_risk = np.zeros((2, BINS)), np.zeros((2, BINS))
    for b in lifetimes.bins_of(np.array(lives_s)).tolist():
        ends[:, b] += 1
        at_risk[:, : b + 1] += 1
    return ends, at_risk


def survival(*lives_s: float) -> FloatArray:
    return lifetimes.survivals(lifetimes.hazards(*learned(*lives_s)))


def chance_of_living(filled: PlacementState, function: str, ahead_s: float) -> float:
    gone = view(filled).lives.gone(function, view(filled).now_s)
    return float(1 - gone[np.searchsorted(AHEAD_S, ahead_s) - 1])


def scores(name: str, filled: PlacementState, **wanted: object) -> list[float]:
    policy = make_policy(name)
    return [float(x) for x in policy.score(view(filled, request("new", **wanted)), filled.memory())]


def run(filled: PlacementState, function: str, node_name: str, start_s: float, life_s: float, count: int = 40) -> None:
    """Pods of a function that started at one time and ended at another."""
    for i in range(count):
        filled.bound(pod(f"{function}-{i}-{start_s}", function=function, node=node_name, scheduled_s=start_s), start_s)
    filled.tick(start_s + life_s)
    for i in range(count):
        filled.ran(f"{function}-{i}-{start_s}", start_s + life_s)


def test_bins_are_two_an_octave_and_hold_every_age() -> None:
    assert lifetimes.bins_of(np.array([0.0, 29.9, 30.0, 42.5, 60.0])).tolist() == [0, 0, 1, 2, 3]
    assert lifetimes.bins_of(EDGES_S[1:-1]).tolist() == list(range(1, BINS))
    assert lifetimes.bins_of(np.array([1e9])).tolist() == [BINS]


def test_what_is_known_of_a_day_ago_counts_half() -> None:
    assert lifetimes.kept_share(24 * HOUR_S) == pytest.approx(0.5)


def test_many_pods_of_an_hour_say_that_the_next_one_lives_an_hour() -> None:
    known = survival(*[HOUR_S] * 200)
    at = lifetimes.survivals_at(known, np.ones(2, np.int64), np.array([0.7 * HOUR_S, 1.5 * HOUR_S]))
    assert at[0] > 0.9
    assert at[1] < 0.1


def test_few_pods_of_an_application_are_filled_up_with_all() -> None:
    ends, at_risk = learned(*[HOUR_S] * 200)
    ends[1] = at_risk[1] = 0.0
    hazard = lifetimes.hazards(ends, at_risk)
    assert hazard[1] == pytest.approx(hazard[0], abs=0.02)


def test_before_anything_was_seen_half_of_those_that_reach_an_age_reach_the_double() -> None:
    known = lifetimes.survivals(lifetimes.hazards(np.zeros((2, BINS)), np.zeros((2, BINS))))
    at = lifetimes.survivals_at(known, np.ones(3, np.int64), np.array([60.0, 120.0, 240.0]))
    assert at[1:] / at[:-1] == pytest.approx([0.5, 0.5])


def test_a_pod_prolongs_an_empty_node_by_all_of_its_life_and_one_where_others_stay_by_nothing() -> None:
    gone = np.where(AHEAD_S < HOUR_S, 0.0, 1.0)
    empty = np.stack([np.ones(POINTS), np.zeros(POINTS), np.where(AHEAD_S < HOUR_S, 0.0, 1.0)])
    assert lifetimes.prolonged(empty, gone).tolist() == [1.0, 0.0, 0.0]
    left = lifetimes.left_behind(empty, gone)
    assert left[0] == left[2] == 0.0
    assert left[1] == pytest.approx(SPANS_S[AHEAD_S >= HOUR_S].sum() / SPANS_S.sum())


def test_a_node_is_empty_when_all_of_its_pods_have_ended() -> None:
    gone = np.full((3, POINTS), 0.5)
    assert lifetimes.chance_empty(gone) == pytest.approx(np.full(POINTS, 0.125))
    assert lifetimes.chance_empty(gone[:0]).tolist() == [1.0] * POINTS


def test_an_old_pod_has_outlived_what_would_have_ended_it() -> None:
    known = survival(*[HOUR_S] * 100, *[24 * HOUR_S] * 100)
    young, old = lifetimes.chances_gone(known, np.ones(2, np.int64), np.array([0.0, 6 * HOUR_S]))
    soon = int(np.searchsorted(AHEAD_S, 2 * HOUR_S))
    assert young[soon] > 0.4
    assert old[soon] < 0.2


def test_a_load_that_nobody_measured_crowds_nothing() -> None:
    crowd = lifetimes.crowding(np.array([np.nan, 8.0, 16.0]), np.full(3, 8.0), 0.8)
    assert crowd == pytest.approx([0.0, 0.2, 1.2])


def test_most_allocated_takes_the_fullest_node_by_cpu_and_memory_alike() -> None:
    filled = state(3)
    filled.put_pod(pod("a", node="n1", cpu_milli=4000, memory_bytes=GIB), 0.0)
    filled.put_pod(pod("b", node="n2", cpu_milli=100, memory_bytes=12 * GIB), 0.0)
    found = scores("most-allocated", filled, cpu_milli=800, memory_bytes=GIB)
    assert found == pytest.approx([(0.1 + 1 / 16) / 2, (0.6 + 2 / 16) / 2, (0.9 / 8 + 13 / 16) / 2])


def test_most_allocated_counts_a_node_without_room_as_full() -> None:
    filled = state(2)
    assert scores("most-allocated", filled, cpu_milli=800_000, memory_bytes=GIB) == pytest.approx([(1 + 1 / 16) / 2] * 2)


def test_nothing_is_kept_of_lifetimes_before_a_policy_asks() -> None:
    filled = state(2)
    run(filled, "default/f", "n0", LONG_AGO, HOUR_S)
    assert filled.kept["lifetimes"] == 0
    scores("lifetimes", filled)
    run(filled, "default/f", "n0", LONG_AGO + 2 * HOUR_S, HOUR_S)
    assert filled.kept["lifetimes"] == 1


def test_a_policy_learns_how_long_pods_live_while_they_come_and_go() -> None:
    filled = state(2)
    filled.tick(LONG_AGO)
    scores("lifetimes", filled)
    run(filled, "default/brief", "n0", LONG_AGO, 300.0)
    run(filled, "default/long", "n0", LONG_AGO, 12 * HOUR_S)
    filled.expire(LONG_AGO + 12 * HOUR_S + REFRESH_S)
    assert chance_of_living(filled, "default/brief", HOUR_S) < 0.2
    assert chance_of_living(filled, "default/long", HOUR_S) > 0.8


def test_pods_that_still_run_count_before_they_end() -> None:
    filled = state(2)
    filled.tick(LONG_AGO)
    scores("lifetimes", filled)
    for i in range(40):
        filled.bound(pod(f"s{i}", function="default/service", node="n0", scheduled_s=LONG_AGO), LONG_AGO)
    before = chance_of_living(filled, "default/service", 6 * HOUR_S)
    filled.expire(LONG_AGO + 24 * HOUR_S)
    assert chance_of_living(filled, "default/service", 6 * HOUR_S) > before + 0.3


def test_a_withdrawn_reservation_is_no_life() -> None:
    filled = state(2)
    filled.tick(LONG_AGO)
    scores("lifetimes", filled)
    filled.decided(request("a", function="default/f"), "n0", LONG_AGO)
    filled.expire(LONG_AGO + 20.0)
    assert filled.kept["lifetimes"] == 0


def test_a_brief_pod_goes_where_others_stay_and_a_long_one_does_not_keep_a_node_of_brief_ones() -> None:
    filled = state(3)
    filled.tick(LONG_AGO)
    scores("lifetimes", filled)
    run(filled, "default/brief", "n2", LONG_AGO, 300.0)
    run(filled, "default/long", "n2", LONG_AGO, 12 * HOUR_S)
    now_s = LONG_AGO + 13 * HOUR_S
    filled.bound(pod("brief", function="default/brief", node="n0", cpu_milli=500), now_s)
    filled.bound(pod("long", function="default/long", node="n1", cpu_milli=400), now_s)
    filled.expire(now_s)
    assert np.argmax(scores("most-allocated", filled)) == 0
    assert np.argmax(scores("lifetimes", filled, function="default/long")) == 1
    assert np.argmin(scores("lifetimes", filled, function="default/brief")) == 2  # nobody is there who would keep it


def test_a_node_whose_load_exceeds_its_cores_is_spared() -> None:
    filled = state(2)
    filled.tick(LONG_AGO)
    for name in ("n0", "n1"):
        filled.bound(pod(name, node=name, cpu_milli=1000), LONG_AGO)
    read(filled, LONG_AGO, cpu_load_avg={"n0": 16.0, "n1": 1.0})
    assert np.argmax(scores("lifetimes", filled)) == 1


def test_a_node_in_the_row_of_one_that_has_gone_starts_empty() -> None:
    filled = state(2)
    filled.tick(LONG_AGO)
    filled.bound(pod("a", node="n0"), LONG_AGO)
    full, _ = scores("lifetimes", filled)
    filled.drop_node("n0")
    filled.put_node(node("n00"))
    assert scores("lifetimes", filled)[0] < full


def test_applications_are_bounded_and_the_one_that_learned_least_recently_goes() -> None:
    filled = PlacementState(StateLimits(most_functions=3))
    filled.put_node(node("n0"))
    filled.tick(LONG_AGO)
    scores("lifetimes", filled)
    for i in range(5):
        run(filled, f"default/f{i}", "n0", LONG_AGO + i * HOUR_S, 300.0, count=2)
    assert (filled.kept["lifetimes"], filled.evicted["lifetimes"]) == (3, 2)


def test_pods_that_came_and_went_at_once_leave_next_to_nothing_on_their_node() -> None:
    filled = state(3)
    filled.tick(LONG_AGO)
    before = scores("lifetimes", filled)
    for i in range(50):
        filled.bound(pod(f"p{i}", node="n1"), LONG_AGO)
    for i in range(50):
        filled.finished(f"p{i}")
    assert scores("lifetimes", filled) == pytest.approx(before, abs=0.05)


def test_what_lifetimes_say_of_a_choice_shrinks_to_nothing_as_they_spread() -> None:
    """Of three nodes, whose only pods started a minute, half an hour and fifty minutes ago, how differently does a new pod prolong them?"""
    differences = []
    for cv in (0.2, 0.6, 1.5):
        sigma = np.sqrt(np.log1p(cv**2))
        lives_s = HOUR_S * np.exp(np.random.default_rng(0).normal(-(sigma**2) / 2, sigma, 2000))
        known, application = survival(*lives_s.tolist()), np.zeros(1, np.int64)
        gone = lifetimes.chances_gone(known, application, np.zeros(1))[0]
        ages_s = (60.0, 1800.0, 3000.0)
        empty = np.stack([lifetimes.chance_empty(lifetimes.chances_gone(known, application, np.array([age_s]))) for age_s in ages_s])
        differences.append(float(np.ptp(lifetimes.prolonged(empty, gone))))
    vague, some, sharp = differences[2], differences[1], differences[0]
    assert sharp > 0.5
    assert 0.1 < some < 0.5 * sharp
    assert vague < 0.1 * sharp
