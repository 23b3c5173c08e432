"""The simulator of long-lived pods: closed forms, bounds, and what its comparators must do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.base.arrays import FloatArray
from tiphys_models.placement import lifetimes
from tiphys_models.placement.sim.lives import decide
from tiphys_models.placement.sim.lives.episode import KUBE, MOST, learned, learned_points, play, static_rule, true_lives, volume_bound
from tiphys_models.placement.sim.lives.points import expected_rests, rests_at_edges, spreads, trust
from tiphys_models.placement.sim.lives.world import DAY_S, WORLDS, LivesPods, LivesWorld, make_pods

pytestmark = pytest.mark.timeout(60, func_only=True)

WORLD = LivesWorld("small", cv=0.2, jobs=8, job_cores=40.0)
RULES = {
    "most": MOST, "kube": KUBE, "static": static_rule((1.0, 0.5, 0.2, 0.1, 0.1, 0.1)), "learned": learned(), "points": learned_points(),
    "true": true_lives(),
}  # fmt: skip


def some_pods(*rows: tuple[float, float, float, float], gib: float = 1.0, works: bool = True) -> LivesPods:
    """Pods of one application: (arrival after the first day, life, cores, use)."""
    arrival, life, cores, use = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    count = len(rows)
    return LivesPods(
        1, DAY_S + arrival, np.zeros(count, np.int64), life, np.full(count, works), cores, np.full(count, gib), use,
        np.arange(count, dtype=np.uint64),
    )  # fmt: skip


@pytest.fixture(scope="module")
def pods() -> LivesPods:
    return make_pods(WORLD, "train", 0)


def test_a_node_is_paid_from_its_opening_until_it_has_been_empty_for_a_while() -> None:
    found = play(WORLD, some_pods((0.0, 3600.0, 1.0, 0.5)), MOST)
    assert found.node_hours == pytest.approx((60 + 3600 + 60) / 3600)
    assert (found.waited_s.tolist(), found.completion_s.tolist()) == ([60.0], [3660.0])


def test_pods_that_fit_share_a_node_and_those_that_do_not_get_another() -> None:
    assert play(WORLD, some_pods((0.0, 3600.0, 8.0, 1.0), (1.0, 3600.0, 8.0, 1.0)), MOST).most_nodes == 1
    assert play(WORLD, some_pods((0.0, 3600.0, 8.0, 1.0), (1.0, 3600.0, 8.5, 1.0)), MOST).most_nodes == 2
    assert play(WORLD, some_pods((0.0, 3600.0, 1.0, 1.0), (1.0, 3600.0, 1.0, 1.0), gib=40.0), MOST).most_nodes == 2


def test_jobs_take_twice_as_long_where_twice_the_cores_would_be_used_and_services_do_not() -> None:
    rows = ((0.0, 3600.0, 8.0, 16.0), (0.0, 3600.0, 8.0, 16.0))
    found = play(WORLD, some_pods(*rows), MOST)
    assert found.slowdown == pytest.approx(2.0)
    assert found.completion_s == pytest.approx([7260.0, 7260.0])
    assert play(WORLD, some_pods(*rows, works=False), MOST).completion_s == pytest.approx([3660.0, 3660.0])


def test_pods_on_a_busy_node_lose_to_each_other_where_they_interfere() -> None:
    found = play(replace(WORLD, interference=0.1), some_pods((0.0, 3600.0, 8.0, 8.0), (0.0, 3600.0, 8.0, 8.0)), MOST)
    assert found.slowdown == pytest.approx(1.1)


def test_a_pending_pod_takes_room_that_others_leave_before_its_node_is_ready() -> None:
    found = play(WORLD, some_pods((0.0, 100.0, 16.0, 1.0), (150.0, 3600.0, 16.0, 1.0)), MOST)
    assert found.waited_s.tolist() == [60.0, 10.0]  # the first one ends at 160, a further node would be ready at 210


def test_a_node_of_few_services_is_emptied_where_nodes_are_consolidated() -> None:
    rows = ((0.0, 40_000.0, 13.0, 1.0), (1.0, 3000.0, 3.0, 1.0), (2.0, 40_000.0, 3.0, 1.0))  # the third goes to a node of its own
    services, consolidating = some_pods(*rows, works=False), replace(WORLD, consolidates=True)
    stays, moves = play(WORLD, services, MOST), play(consolidating, services, MOST)
    assert (stays.most_nodes, stays.moved, moves.moved) == (2, 0, 1)
    assert moves.node_hours < stays.node_hours - 10.0
    assert moves.completion_s == pytest.approx(stays.completion_s)
    assert play(consolidating, some_pods(*rows, works=True), MOST).moved == 0  # jobs are left in peace


@pytest.mark.parametrize("name", RULES)
def test_every_pod_starts_and_no_rule_needs_less_than_the_volume(name: str, pods: LivesPods) -> None:
    found = play(WORLD, pods, RULES[name])
    assert found.pods > 500
    assert found.unplaced <= 3
    assert found.node_hours > volume_bound(pods) * 0.999
    assert found.slowdown >= 1.0 - 1e-9


def test_the_same_seed_gives_the_same_figures_and_another_split_other_pods(pods: LivesPods) -> None:
    again = play(WORLD, make_pods(WORLD, "train", 0), learned())
    assert play(WORLD, pods, learned()).node_hours == again.node_hours
    assert make_pods(WORLD, "test", 0).arrival_s[0] != pods.arrival_s[0]


def test_packing_needs_fewer_nodes_than_spreading_and_knowing_lives_fewer_still() -> None:
    hours = dict.fromkeys(("kube", "most", "learned", "true"), 0.0)
    for seed in range(3):
        drawn = make_pods(WORLD, "train", seed)
        for name in hours:
            hours[name] += play(WORLD, drawn, RULES[name]).node_hours
    assert hours["kube"] > 1.15 * hours["most"]
    assert hours["learned"] < hours["most"]
    assert hours["true"] < hours["most"]


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_worlds_have_the_spread_and_the_load_that_they_name(world: LivesWorld) -> None:
    drawn = make_pods(replace(world, services=0), "train", 3)
    spread = [np.log(drawn.life_s[drawn.application == a]).std() for a in range(world.jobs) if (drawn.application == a).sum() > 200]
    assert np.median(spread) == pytest.approx(np.sqrt(np.log(1 + world.cv**2)), rel=0.1)
    inside = np.clip(drawn.arrival_s + drawn.life_s, DAY_S, 2 * DAY_S) - np.clip(drawn.arrival_s, DAY_S, 2 * DAY_S)
    assert (inside * drawn.cores).sum() / DAY_S == pytest.approx(world.job_cores, rel=0.25)


def test_services_are_replaced_one_by_one_and_are_never_fewer() -> None:
    world = next(world for world in WORLDS if world.services)
    drawn = make_pods(world, "train", 0)
    services = drawn.application >= world.jobs
    times_s = np.linspace(DAY_S, 2 * DAY_S, 50)
    there = [((drawn.arrival_s <= t) & (drawn.arrival_s + drawn.life_s > t) & services).sum() for t in times_s]
    assert min(there) >= world.services * 3
    assert not drawn.works[services].any()


def test_compiled_arithmetic_is_the_served_arithmetic() -> None:
    rng = np.random.default_rng(0)
    at_risk = rng.uniform(5.0, 50.0, (4, lifetimes.BINS))
    ends = at_risk * rng.uniform(0.0, 0.5, at_risk.shape)
    hazard = lifetimes.hazards(ends, at_risk)
    known = lifetimes.survivals(hazard)
    of, age_s = rng.integers(0, 4, 20), np.exp(rng.uniform(1.0, 13.0, 20))
    gone = lifetimes.chances_gone(known, of, age_s)
    empty = np.stack([lifetimes.chance_empty(gone[i : i + 4]) for i in range(0, 20, 4)])

    def same(compiled: FloatArray, served: FloatArray) -> None:
        np.testing.assert_allclose(compiled, served, rtol=1e-12, atol=1e-15)

    same(decide._hazards(ends, at_risk), hazard)
    same(decide._survivals(hazard), known)
    same(decide._chances_gone(known, of, age_s), gone)
    same(decide._chance_empty(gone[:4]), empty[0])
    same(decide._prolonged(empty, gone[7]), lifetimes.prolonged(empty, gone[7]))
    same(decide._left_behind(empty, gone[7]), lifetimes.left_behind(empty, gone[7]))


def test_points_say_how_long_a_pod_rests_and_how_far_they_can_be_trusted() -> None:
    ends, at_risk = np.zeros((2, lifetimes.BINS)), np.zeros((2, lifetimes.BINS))
    for b in lifetimes.bins_of(np.full(500, 3600.0)).tolist():
        ends[:, b] += 1
        at_risk[:, : b + 1] += 1
    hazard = lifetimes.hazards(ends, at_risk)
    rest = rests_at_edges(hazard)
    young, old = expected_rests(hazard, rest, np.ones(2, np.int64), np.array([60.0, 3000.0]))
    assert young == pytest.approx(3540.0, rel=0.15)
    assert old < 1200.0
    assert spreads(lifetimes.survivals(hazard))[1] < 0.3
    assert trust(0.1, 0.8) > 0.9 > 0.5 > trust(1.5, 0.8)
