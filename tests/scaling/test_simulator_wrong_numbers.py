"""The simulator with numbers that are wrong, late, noisy, or not to be had; and what is raised between windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.scaling.test_simulator_service import Fixed, constant
from tiphys_models.base.arrays import FloatArray
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.protocol import Answers
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.rule_plus import RulePlus
from tiphys_models.scaling.sim.episode import ServiceEpisode, play
from tiphys_models.scaling.sim.fluid import FluidServices
from tiphys_models.scaling.sim.load import draw_load, released
from tiphys_models.scaling.sim.noise import NOISES, make_noisy, noisy_ending, repeated, with_noise
from tiphys_models.scaling.sim.requests import RequestServices
from tiphys_models.scaling.sim.scenario import DEFAULT_SCENARIO, FIBONACCI, SCENARIOS, ServiceScenario
from tiphys_models.scaling.sim.shapes import LoadShape, make_shape

LOOKING = Control(standing=False)


def jump(*, requests: bool = False) -> LoadShape:
    return LoadShape("jump", "train", 1, np.repeat([150.0, 600.0], 302))


def test_beliefs_are_mended_by_the_first_windows() -> None:
    load = constant(300.0, 600)
    right, low, high = (play(make_agent("rule"), [load], SCENARIOS[name]).cost()[0] for name in ("measured", "cpu-off-30", "cpu-over-30"))
    assert low == pytest.approx(right, rel=0.02)
    assert high == pytest.approx(right, rel=0.02)


def test_without_any_reading_of_cpu_the_controller_alone_repairs_a_belief() -> None:
    load = constant(300.0, 1800)
    agent, rule = (play(a, [load], SCENARIOS["cpu-unread"]).kept()[0, 60:].mean() for a in (RulePlus(), make_agent("rule")))
    assert agent > 0.9
    assert rule < 0.1


def test_agents_are_told_the_truth_by_default() -> None:
    episode = ServiceEpisode([constant(300.0, 60)], DEFAULT_SCENARIO)
    while not episode.over:
        episode.advance()
        assert episode.cpu_ms.tolist() == [FIBONACCI.cpu_ms]


@pytest.mark.parametrize("requests", [False, True])
def test_after_a_release_requests_take_more_and_the_estimate_follows(requests: bool) -> None:
    load = released(constant(300.0, 600, requests=requests), 1.2)
    plain = constant(300.0, 600, requests=requests)
    half = len(load.counts) // 2
    assert load.work_s[:half].sum() == plain.work_s[:half].sum()
    assert load.work_s[half:].sum() == pytest.approx(1.2 * plain.work_s[half:].sum())
    scenario = SCENARIOS["release"]
    plant = (RequestServices if requests else FluidServices)([load], scenario)
    episode = ServiceEpisode([load], scenario, plant)
    agent = make_agent("rule")
    while not episode.over:
        episode.advance()
        seen = episode.seen()
        assert seen is not None
        episode.apply(seen, agent.answer(seen))
    assert episode.cpu_ms[0] == pytest.approx(1.2 * FIBONACCI.cpu_ms, rel=0.05)


def test_a_resize_is_in_force_when_it_is_done_and_paid_from_then() -> None:
    late = ServiceScenario("late", resize_s=(3.0, 3.0))
    load = constant(100.0, 60)
    at_once, later = (play(Fixed(1, 600.0), [load], s) for s in (DEFAULT_SCENARIO, late))
    assert at_once.cpu_m[0].tolist() == [500.0, 600.0, 600.0, 600.0]
    assert later.cpu_m[0].tolist() == [500.0, 500.0, 600.0, 600.0]
    assert later.paid_m[0, 1] == pytest.approx(0.2 * 500 + 0.8 * 600)


def test_pods_go_with_the_resize_that_makes_up_for_them() -> None:
    late = ServiceScenario("late", resize_s=(3.0, 3.0))
    episode = ServiceEpisode([constant(300.0, 60)], late)
    episode.start_with(np.array([4]), np.array([200.0]))
    episode.advance()
    seen = episode.seen()
    assert seen is not None
    episode.apply(seen, Answers(np.array([2]), np.array([400.0])))
    assert episode.replicas.tolist() == [4]
    episode.advance()
    assert (episode.replicas.tolist(), episode.cpu_m.tolist()) == ([2], [400.0])
    assert episode.records().pods[0, 1] == pytest.approx(0.2 * 4 + 0.8 * 2)


def test_pods_that_are_wanted_after_all_stay() -> None:
    episode = ServiceEpisode([constant(300.0, 60)], ServiceScenario("late", resize_s=(16.0, 16.0)))
    episode.start_with(np.array([4]), np.array([200.0]))
    for replicas, cpu_m in ((2, 400.0), (4, 200.0), (4, 200.0)):
        episode.advance()
        seen = episode.seen()
        assert seen is not None
        episode.apply(seen, Answers(np.array([replicas]), np.array([cpu_m])))
        assert episode.replicas.tolist() == [4]
    episode.advance()
    assert episode.replicas.tolist() == [4]


@pytest.mark.parametrize("plant", [RequestServices, FluidServices])
def test_a_jump_is_met_between_two_windows(plant: type) -> None:
    load = draw_load(jump(), FIBONACCI, requests=True)
    looking, waiting = (play(RulePlus(c), [load], DEFAULT_SCENARIO, plant) for c in (LOOKING, replace(LOOKING, looks=False)))
    assert looking.requests_attained()[0] > waiting.requests_attained()[0] + 0.01
    old = replace(DEFAULT_SCENARIO, looks_late=5)
    assert play(RulePlus(LOOKING), [load], old, plant).requests_attained()[0] < looking.requests_attained()[0]


def test_looks_at_a_calm_service_change_nothing() -> None:
    load = constant(300.0, 300)
    looking, waiting = (play(RulePlus(c), [load], DEFAULT_SCENARIO) for c in (LOOKING, replace(LOOKING, looks=False)))
    np.testing.assert_allclose(looking.paid_m, waiting.paid_m)


def test_nothing_shrinks_in_the_window_of_a_raise() -> None:
    load = draw_load(jump(), FIBONACCI)
    episode, agent = ServiceEpisode([load], DEFAULT_SCENARIO, control=LOOKING), RulePlus(LOOKING)
    masks = []
    while not episode.over:
        episode.advance()
        seen = episode.seen()
        assert seen is not None
        masks.append(seen.movable[0].tolist())
        episode.apply(seen, agent.answer(seen))
    assert masks.count([True, False, True, False]) in (1, 2)


def test_both_simulators_agree_on_raises() -> None:
    loads = [draw_load(make_shape(name, "validation", 7, 900), FIBONACCI, requests=True) for name in ("flash", "diurnal")]
    for load in loads:
        exact, fluid = (play(RulePlus(), [load], SCENARIOS["resizes-late"], plant) for plant in (RequestServices, FluidServices))
        assert abs(exact.attained()[0] - fluid.attained()[0]) <= 0.035
        np.testing.assert_allclose(exact.cost(), fluid.cost(), rtol=0.05)


def test_what_is_learned_is_that_of_the_window_that_lag_lets_be_seen() -> None:
    scenario = ServiceScenario("lag", lag_windows=2, cpu_measured=True, cpu_believed=0.5)
    episode = ServiceEpisode([constant(300.0, 120)], scenario)
    told = []
    while not episode.over:
        episode.advance()
        told.append(bool(episode.cpu_ms[0] > 0.9 * FIBONACCI.cpu_ms))
    assert told[:3] == [False, False, True]


def test_slow_starts_make_pods_stand_by() -> None:
    load = draw_load(make_shape("flash", "train", 1, 1800), FIBONACCI)
    slow = ServiceEpisode([load], SCENARIOS["starts-40"], control=Control())
    agent = RulePlus()
    while not slow.over:
        slow.advance()
        seen = slow.seen()
        assert seen is not None
        slow.apply(seen, agent.answer(seen))
    assert slow.learning.stands.tolist() == [True]


def _spread(rps: FloatArray) -> float:
    return float(np.std(rps) / np.mean(rps))


@pytest.mark.parametrize("ending", NOISES)
def test_noise_has_its_strength_and_its_correlation(ending: str) -> None:
    cv, correlated_s = NOISES[ending]
    flat = LoadShape("flat", "train", 3, np.full(40_000, 300.0))
    rps = with_noise(flat, ending).rps
    assert rps.mean() == pytest.approx(300.0, rel=0.05)
    assert _spread(rps) == pytest.approx(cv, rel=0.1)
    log = np.log(rps) - np.log(rps).mean()
    lag = round(correlated_s)
    assert float((log[lag:] * log[:-lag]).mean() / log.var()) == pytest.approx(np.exp(-lag / correlated_s), abs=0.08)


def test_noisy_shapes_are_their_split_and_seed() -> None:
    first, again, other = (make_noisy("noisy-20", "train", seed).rps for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == 3 * 3600
    assert (noisy_ending("noisy-35"), noisy_ending("mine-noisy-50")) == ("35", "50")
    assert (noisy_ending("flash"), noisy_ending("noisy-99"), noisy_ending("unnoisy-20")) == ("", "", "")
    assert repeated(LoadShape("x", "file", 0, np.arange(4.0)), 10).rps.tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_impossible_scenarios_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot come early"):
        ServiceScenario("x", looks_late=-1)
