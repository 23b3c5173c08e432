from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.base.arrays import FloatArray
from tiphys_models.base.errors import InvalidInput
from tiphys_models.base.network import Network
from tiphys_models.streams import kernels
from tiphys_models.streams.agent import ACTIONS, FEATURES, GROUPS, HIDDEN, Agent, action_policies
from tiphys_models.streams.learned import ScorePolicy
from tiphys_models.streams.protocol import View, bind
from tiphys_models.streams.registry import make_policy
from tiphys_models.streams.rules import STATIC
from tiphys_models.streams.sim.choosers import (
    ActionOracle,
    Alternating,
    RandomActions,
    SimulatedBinder,
    Switching,
    actions_of,
    ahead,
    table_action,
)
from tiphys_models.streams.sim.episode import STATIC_ACTIONS, Action, ActionChooser, FixedAction, StreamEpisode, WindowMoment, play
from tiphys_models.streams.sim.kernel import NOT_YET, REJECTED, EdgeCloud, Streams, empty_feasible
from tiphys_models.streams.sim.queues import DROPPED, LATE, REJECT, SUCCESS
from tiphys_models.streams.sim.scenario import DEFAULT_SCENARIO, StreamScenario
from tiphys_models.streams.sim.topology import ANTENNAS, GPU_VARIANTS, GPUS, TOPOLOGIES, make_topology
from tiphys_models.streams.sim.workloads import APPLICATIONS, NAMES, make_streams
from tiphys_models.streams.stream import Stream

HORIZON_S = 60.0
EDGE = make_topology("full-edge")
ACTION = {a.name: a for a in STATIC_ACTIONS}
EVENTS = StreamScenario(events=True)
SOME = np.array([0.3, -0.1, 0.5, 0.3, 0.3, 0.1, 0.1, 0.2, 1, 1, -0.2, 0.2, 0.3, 0.3, 0.2, 0.3, 0.3, 0.1, 1.5, 0.5])


def streams(seed: int = 0, rate: float = 60.0) -> Streams:
    return make_streams("validation", seed, rate, horizon_s=HORIZON_S)


def one_offer(capacity_qps: float, sigma_ms: float = 0.0, replicas: int = 1) -> EdgeCloud:
    """One access site, one offer 1 ms away that takes 8 ms."""
    one = np.ones(1)
    columns = kernels.Columns(capacity_qps * one, 8 * one, 30 * one, 40 * one, np.ones(1, np.uint64), replicas * one)
    return EdgeCloud(columns, (1 + 2 * sigma_ms) * np.ones((1, 1)), np.ones((1, 1)), np.full((1, 1), sigma_ms))


def alike(count: int, rate_qps: float, max_delay_ms: float, lasts_s: float = HORIZON_S, application: int = 0) -> Streams:
    """Streams that all begin at once."""
    full = np.ones(count)
    rng = np.random.default_rng(0)
    return Streams(
        0 * full, lasts_s * full, np.arange(count), np.zeros(count, np.int64), np.full(count, application), rate_qps * full, 40 * full,
        max_delay_ms * full, max_delay_ms * full, 20 * full, rng.integers(0, 2**64, count, np.uint64), rng.uniform(0, 1, count),
    )  # fmt: skip


def counted(world: EdgeCloud, wanted: Streams, scenario: StreamScenario, horizon_s: float = HORIZON_S) -> FloatArray:
    """Queries by what became of them."""
    return np.asarray(play(world, wanted, FixedAction(ACTION["closest"]), scenario, horizon_s).outcome.tally.sum(axis=0))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_has_the_same_gpus_and_the_published_shares(name: str) -> None:
    gpu = [o for o in make_topology(name).offers.all if "gpu" in o.variant.name]
    assert sum(o.replicas for o in gpu) == GPUS
    assert sum(o.replicas for o in make_topology(name).offers.all) - GPUS == 2 * ANTENNAS
    assert {o.variant.name for o in gpu} == {v[0] for v in GPU_VARIANTS}
    cloud = sum(o.replicas for o in gpu if o.site.layer == "cloud") / GPUS
    assert cloud == pytest.approx({"dc-cloud": 0.6, "co-dc-cloud": 0.4, "full-edge": 0.3}[name], abs=0.02)


def test_streams_are_the_seed_s_and_possible_somewhere() -> None:
    first, again = streams(), streams()
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.draw[:5], make_streams("test", 0, 60.0, horizon_s=HORIZON_S).draw[:5])
    assert empty_feasible(EDGE.world, first).all()
    assert len(first.start_s) == pytest.approx(8 * HORIZON_S, rel=0.15)
    assert set(first.application) == set(range(len(APPLICATIONS)))


@pytest.mark.parametrize("scenario", [DEFAULT_SCENARIO, EVENTS])
def test_every_query_succeeds_is_rejected_or_fails(scenario: StreamScenario) -> None:
    found = play(EDGE.world, streams(), FixedAction(ACTION["farthest"]), scenario, HORIZON_S).outcome
    assert sum(found.shares()) == pytest.approx(1)
    wanted = streams()
    asked = wanted.rate_qps @ (np.minimum(wanted.end_s, HORIZON_S) - wanted.start_s)
    assert found.tally.sum() == pytest.approx(asked, rel=0.001)
    for application in range(len(NAMES)):
        assert sum(found.shares(application)) == pytest.approx(1)


@pytest.mark.parametrize("policy", [*STATIC, "score"])
def test_the_simulator_binds_as_the_served_policy_does(policy: str) -> None:
    action, served = (ACTION[policy], make_policy(policy)) if policy in STATIC else (Action.score(SOME), ScorePolicy(SOME))
    wanted = streams(rate=220.0)
    episode = StreamEpisode(EDGE.world, wanted, replace(DEFAULT_SCENARIO, view_s=0.0), HORIZON_S)
    replayed: dict[int, int] = {}
    for i in range(800):
        episode.window(action, float(wanted.start_s[i]) - episode.now_s)  # up to this stream, which the next window binds
        if i % 4 == 0:
            a = int(wanted.access[i])
            seen = View(EDGE.world.network_ms[a], episode.state.load_qps.copy(), np.ones(len(EDGE.offers), np.bool_))
            asked = Stream(
                "detect", float(wanted.max_delay_ms[i]), float(wanted.min_accuracy[i]), float(wanted.rate_qps[i]), float(wanted.size_kb[i]),
                1e9, float(wanted.max_delay_ms[i] - wanted.slack_ms[i]) / 2, draw=int(wanted.draw[i]),
            )  # fmt: skip
            replayed[i] = bind(served, EDGE.offers, asked, seen).offer
    assert replayed == {i: max(int(episode.state.offer[i]), REJECTED) for i in replayed}
    assert -1 in replayed.values()  # full, or declined
    assert len(set(replayed.values())) > 5


def test_the_ceiling_holds_with_an_exact_view_and_an_old_one_lets_sites_overbook() -> None:
    def most(scenario: StreamScenario) -> float:
        episode, highest = StreamEpisode(EDGE.world, streams(rate=110.0), scenario, HORIZON_S), 0.0
        while not episode.over:
            episode.window(ACTION["load-balancing"], 1.0)
            highest = max(highest, float((episode.state.load_qps / EDGE.world.columns.capacity_qps).max()))
        return highest

    assert most(replace(DEFAULT_SCENARIO, view_s=0.0)) <= 0.9 + 1e-9
    assert most(DEFAULT_SCENARIO) > 0.95
    assert most(replace(DEFAULT_SCENARIO, view_s=0.0, ceiling=0.5)) <= 0.5 + 1e-9


def bound_at(world: EdgeCloud, wanted: Streams, **changed: Any) -> list[int]:
    """Where streams that all begin at once are bound by `closest`."""
    episode = StreamEpisode(world, wanted, replace(DEFAULT_SCENARIO, **changed), HORIZON_S)
    episode.window(ACTION["closest"])
    return [int(o) for o in episode.state.offer]


def test_equals_are_decided_by_spare_capacity_by_name_or_by_chance() -> None:
    two = np.ones(2)
    columns = kernels.Columns(1000 * two, 8 * two, 30 * two, 40 * two, np.array([7, 11], np.uint64), two)
    twins = EdgeCloud(columns, np.ones((1, 2)), np.ones((1, 2)), np.zeros((1, 2)))
    wanted = alike(40, 10.0, 200.0)
    assert bound_at(twins, wanted) == [0, 1] * 20
    assert bound_at(twins, wanted, tie="name") == [0] * 40
    drawn = [int(np.argmax(kernels.draws(bits, columns.hashes))) for bits in wanted.draw]
    assert bound_at(twins, wanted, tie="random") == drawn
    assert 0 < sum(drawn) < 40


def test_a_site_that_hears_of_its_own_bindings_late_overbooks() -> None:
    wanted = alike(15, 10.0, 200.0)
    assert bound_at(one_offer(100.0), wanted) == [0] * 9 + [REJECTED] * 6
    assert bound_at(one_offer(100.0), wanted, own_at_once=False) == [0] * 15


def test_queries_of_the_warm_up_are_not_counted() -> None:
    wanted, world = alike(15, 10.0, 200.0), one_offer(100.0)
    whole, warm = (counted(world, wanted, replace(DEFAULT_SCENARIO, warm_up_s=s)) for s in (0.0, 20.0))
    assert warm.sum() == pytest.approx(whole.sum() * 40 / 60)
    assert warm[REJECT] == pytest.approx(whole[REJECT] * 40 / 60)


def test_in_a_fluid_nobody_waits_below_the_capacity() -> None:
    wanted, world = alike(8, 10.0, 10.5), one_offer(100.0)  # half a millisecond to wait at a use of 80 %
    fluid, queues = (counted(world, wanted, replace(DEFAULT_SCENARIO, variability=v)) for v in (0.0, kernels.VARIABILITY))
    assert fluid[SUCCESS] == pytest.approx(fluid.sum())
    assert queues[LATE] / queues.sum() > 0.5


def test_loads_return_to_nothing_when_streams_have_ended() -> None:
    wanted = streams()
    early = wanted._replace(end_s=np.minimum(wanted.end_s, 50.0), start_s=np.minimum(wanted.start_s, 49.0))
    early = early._replace(by_end=np.argsort(early.end_s, kind="stable"))
    episode = StreamEpisode(EDGE.world, early, DEFAULT_SCENARIO, HORIZON_S)
    while not episode.over:
        episode.window(ACTION["closest"])
    assert np.abs(episode.state.load_qps).max() < 1e-6
    assert np.abs(episode.state.seen_qps).max() < 1e-6
    assert (episode.state.offer != NOT_YET).all()


@pytest.mark.parametrize("scenario", [replace(DEFAULT_SCENARIO, ceiling=2.0), replace(EVENTS, ceiling=2.0)])
def test_beyond_the_capacity_queries_wait_half_a_second_and_are_dropped(scenario: StreamScenario) -> None:
    found = counted(one_offer(100.0), alike(15, 10.0, 5000.0), scenario)
    assert found[DROPPED] / found.sum() == pytest.approx(1 / 3, abs=0.02)
    assert found[LATE] < 1e-9
    impatient = counted(one_offer(100.0), alike(15, 10.0, 100.0), scenario)
    assert impatient[SUCCESS] / impatient.sum() < 0.05  # who is served has waited half a second


@pytest.mark.parametrize("scenario", [DEFAULT_SCENARIO, EVENTS])
def test_without_waiting_the_late_share_is_the_normal_tail_of_both_ways(scenario: StreamScenario) -> None:
    # 2 ms of way, 8 ms of processing; slack 14 ms at sigma 2: two deviations each way
    found = counted(one_offer(1e6, sigma_ms=1.0), alike(20, 20.0, 14.0), scenario)
    assert found[LATE] / found.sum() == pytest.approx(0.00234, abs=0.001)
    assert found[REJECT] == 0


def test_poisson_frames_at_one_server_wait_as_queueing_theory_says() -> None:
    # M/D/1 at 80 %, service 10 ms: P(W > 0) = 0.8; the tail falls by theta a ms, where 0.08 (e^(10 theta) - 1) = theta
    late = {}
    for slack_ms in (0.001, 30.0, 60.0):
        tally = counted(one_offer(100.0), alike(8, 10.0, 10.0 + slack_ms, 600.0), replace(EVENTS, poisson_frames=True), 600.0)
        late[slack_ms] = tally[LATE] / tally.sum()
    assert late[0.001] == pytest.approx(0.8, abs=0.02)
    assert np.log(late[30.0] / late[60.0]) / 30 == pytest.approx(0.0447, rel=0.1)


def test_clones_see_the_same_future_and_leave_the_present_alone() -> None:
    episode = StreamEpisode(EDGE.world, streams(), DEFAULT_SCENARIO, HORIZON_S)
    episode.window(ACTION["closest"])
    load = episode.state.load_qps.copy()
    twin = episode.clone()
    ahead(episode, ACTION["farthest"], ACTION["closest"], 3)
    assert np.array_equal(load, episode.state.load_qps)
    assert np.array_equal(twin.window(ACTION["cheaper"]).tally, episode.window(ACTION["cheaper"]).tally)


def constant_agent(best: int, margin: float) -> Agent:
    """One that always estimates one action ten points better than the others."""
    widths = (FEATURES, HIDDEN, len(ACTIONS))
    bias = np.zeros(len(ACTIONS))
    bias[best] = 10.0
    network = Network([(np.zeros((a, b)), c) for a, b, c in zip(widths, widths[1:], (np.zeros(HIDDEN), bias), strict=False)])
    policies = action_policies(SOME, [2] * len(NAMES), NAMES)
    return Agent("made", policies, network, np.zeros(FEATURES), np.ones(FEATURES), 2, margin)


@pytest.mark.parametrize(("margin", "expected"), [(5.0, "score"), (20.0, "farthest")])
def test_an_agent_leaves_its_base_only_above_the_margin(margin: float, expected: str) -> None:
    agent, wanted = constant_agent(ACTIONS.index("score"), margin), streams()
    chooser = Switching(agent, actions_of(agent, NAMES), SimulatedBinder(EDGE.offers, wanted))
    assert set(play(EDGE.world, wanted, chooser, DEFAULT_SCENARIO, 20.0).chosen) == {expected}


def test_what_agents_see_has_one_size_for_every_topology_and_grows_with_use() -> None:
    seen = {}
    for name in ("full-edge", "dc-cloud"):
        where, wanted = make_topology(name), streams()
        episode, watcher = StreamEpisode(where.world, wanted, DEFAULT_SCENARIO, HORIZON_S), SimulatedBinder(where.offers, wanted)
        before = watcher.features(WindowMoment(0, None, episode), 0)
        last = episode.window(ACTION["farthest"])
        seen[name] = (before, watcher.features(WindowMoment(1, last, episode), 0))
        assert seen[name][0].shape == seen[name][1].shape == (FEATURES,)
        assert np.isfinite(seen[name][1]).all()
        assert not before[: 3 * GROUPS].any()
    assert seen["dc-cloud"][1][: 3 * GROUPS].any()
    antennas_and_offices = slice(0, 3 * 6)
    assert not seen["dc-cloud"][1][antennas_and_offices].any()


def choosers() -> list[ActionChooser]:
    return [
        RandomActions(STATIC_ACTIONS, np.random.default_rng(0)),
        Alternating(ACTION["closest"], ACTION["farthest"]),
        ActionOracle(STATIC_ACTIONS[:3], ACTION["farthest"], 2),
        FixedAction(table_action([0, 1, 2, 3, 4, 5, 6, 7, 2], np.zeros(kernels.WEIGHTS))),
        FixedAction(Action.score(SOME)),
    ]


@pytest.mark.parametrize("chooser", choosers(), ids=lambda c: type(c).__name__)
def test_comparators_play_to_the_end(chooser: ActionChooser) -> None:
    found = play(EDGE.world, streams(rate=30.0), chooser, DEFAULT_SCENARIO, 30.0)
    assert len(found.chosen) == 6
    assert sum(found.outcome.shares()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("kinds", "weights", "message"),
    [
        ([0] * len(NAMES), SOME[:-1], r"weights must be 20 numbers, and have the shape \(19,\)"),
        ([0] * len(NAMES), np.zeros((3, 7)), r"weights .* \(3, 7\)"),
        ([0] * (len(NAMES) - 1), SOME, "kinds must be 9 numbers"),
        ([-1] + [0] * (len(NAMES) - 1), SOME, "one is -1"),
        ([0] * (len(NAMES) - 1) + [9], SOME, "from 0 to 8, and one is 9"),
    ],
)
def test_an_action_that_compiled_code_would_read_beyond_is_refused(kinds: list[int], weights: FloatArray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        table_action(kinds, weights)


def test_names_are_checked() -> None:
    with pytest.raises(InvalidInput, match="no topology is called 'ring'"):
        make_topology("ring")


def test_ticks_fail_about_as_many_queries_as_events_do() -> None:
    wanted = make_streams("validation", 1, 60.0, horizon_s=120.0)
    gaps = []
    for name in ("closest", "farthest", "random-load", "relative-load"):
        found = [
            play(EDGE.world, wanted, FixedAction(ACTION[name]), scenario, 120.0).outcome.shares() for scenario in (DEFAULT_SCENARIO, EVENTS)
        ]
        assert found[0][1] == pytest.approx(found[1][1], abs=0.005)  # the same bindings
        gaps.append(found[0][2] - found[1][2])
    assert np.abs(gaps).max() < 0.04
