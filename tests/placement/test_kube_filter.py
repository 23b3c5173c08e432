"""Calls under Kubernetes' filter: nobody overcommits, nobody waits beyond the bound, the worlds are what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba")

from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.sim.functions import FUNCTIONS, MIB
from tiphys_models.placement.sim.kube import play as module
from tiphys_models.placement.sim.kube.play import BOOKS, ESTIMATOR, KUBE_DEFAULT, MOST_ALLOCATED, RULE_6, WAITS, AnyPlayer, play_kube
from tiphys_models.placement.sim.kube.scenario import DEAR_STARTS, GENERATION_MIX, LITTLE_MEMORY, STANDARD, KubeScenario, varied
from tiphys_models.placement.sim.scenario import make_fleet
from tiphys_models.placement.sim.workloads import CallWorkload, first_calls, make_workload
from tiphys_models.placement.waiting import LONGEST_S, LOOK_AGAIN_S

EVERYBODY: tuple[AnyPlayer, ...] = (WarmFirst(), KUBE_DEFAULT, MOST_ALLOCATED, BOOKS, WAITS, RULE_6, ESTIMATOR)


def calls(name: str = "M1", seed: int = 7) -> CallWorkload:
    return make_workload(name, "train", seed)


@pytest.mark.parametrize("player", EVERYBODY, ids=lambda p: p.name)
@pytest.mark.parametrize("scenario", [STANDARD, LITTLE_MEMORY], ids=lambda s: s.name)
def test_memory_of_unfinished_calls_never_exceeds_a_node(player: AnyPlayer, scenario: KubeScenario) -> None:
    workload = calls()
    found = play_kube(workload, player, scenario)
    memory = np.array([f.memory_mib * float(MIB) for f in FUNCTIONS])[workload.function]
    assert np.isfinite(found.calls.finish_s).all(), "every call ends"
    assert (found.placed_s >= workload.arrival_s - 1e-9).all()
    for node, capacity in enumerate(scenario.cluster.capacity_bytes()):
        there = found.calls.node == node
        at = [(t, m) for t, m in zip(found.placed_s[there], memory[there], strict=True)]
        at += [(t, -m) for t, m in zip(found.calls.finish_s[there], memory[there], strict=True)]
        held = np.cumsum([m for _, m in sorted(at, key=lambda entry: (entry[0], entry[1]))])
        assert not len(held) or held.max() <= capacity


@pytest.mark.parametrize("player", [WAITS, RULE_6, ESTIMATOR], ids=lambda p: p.name)
def test_nobody_is_told_to_wait_for_longer_than_the_bound(player: AnyPlayer) -> None:
    found = play_kube(calls("M10"), player, DEAR_STARTS)
    assert (found.held_s > 0).any()
    assert found.held_s.max() <= LONGEST_S + LOOK_AGAIN_S


def test_who_does_not_wait_is_never_held() -> None:
    for player in (WarmFirst(), KUBE_DEFAULT, MOST_ALLOCATED, BOOKS):
        assert not play_kube(calls(), player, STANDARD).held_s.any()


def test_books_need_no_readings() -> None:
    often, never = (replace(STANDARD, cluster=replace(STANDARD.cluster, period_s=period)) for period in (1.0, 1e6))
    first, second = (play_kube(calls(), BOOKS, scenario).calls for scenario in (often, never))
    assert (first.node == second.node).all()


def test_one_workload_ends_the_same_every_time() -> None:
    first, second = (play_kube(calls(), ESTIMATOR, STANDARD).calls for _ in range(2))
    assert (first.finish_s == second.finish_s).all()


def test_a_fast_node_runs_a_lone_call_sooner() -> None:
    alone = first_calls(calls(), float(calls().arrival_s[1]))
    times = {}
    for speed in (0.7, 1.3):
        world = replace(GENERATION_MIX, cluster=replace(GENERATION_MIX.cluster, nodes=1))
        cluster = play_kube(alone, BOOKS, replace(world, generations=False)).calls.completion_s[0]
        times[speed] = cluster
    assert times[0.7] == times[1.3], "without generations nodes are alike"
    mixed = play_kube(alone, BOOKS, replace(GENERATION_MIX, cluster=replace(GENERATION_MIX.cluster, nodes=1))).calls.completion_s[0]
    assert mixed == pytest.approx(times[0.7] / 0.7), "the first node is of the oldest generation"


def test_a_first_start_waits_for_its_image_and_the_next_one_does_not() -> None:
    alone = first_calls(calls(), float(calls().arrival_s[1]))
    one = replace(STANDARD, cluster=replace(STANDARD.cluster, nodes=1))
    without, with_pull = (play_kube(alone, BOOKS, world).calls.completion_s[0] for world in (one, replace(one, image_mib=300.0)))
    assert with_pull == pytest.approx(without + 3.0)


def test_images_of_one_node_are_pulled_one_after_the_other_and_the_oldest_go() -> None:
    workload = calls("M10")
    world = replace(STANDARD, cluster=replace(STANDARD.cluster, nodes=1, memory_gib=16.0), image_mib=300.0)
    kept, evicted = (play_kube(workload, BOOKS, replace(world, images_kept_mib=room)).calls for room in (1e9, 300.0))
    assert evicted.completion_s.mean() > kept.completion_s.mean()


def test_more_variation_keeps_the_mean_of_work() -> None:
    workload = replace(calls(), noise=np.exp(np.random.default_rng(0).normal(-0.5 * np.log(1.09), np.sqrt(np.log(1.09)), 200_000)))
    for variation in (1.0, 2.0):
        noise = varied(workload, variation).noise
        assert noise.mean() == pytest.approx(1.0, abs=0.03)
        assert noise.std() == pytest.approx(variation, rel=0.1)


def test_declared_profiles_are_wrong_by_the_error_that_the_world_names() -> None:
    fleet = make_fleet(STANDARD.cluster, calls())
    right, worth = module.priors(STANDARD, calls(), fleet)
    wrong, _ = module.priors(replace(STANDARD, error=0.6), calls(), fleet)
    assert (worth == 3.0).all()
    assert 0.1 < np.abs(np.log(wrong / right)).mean() < 1.0
    nothing, worth = module.priors(replace(STANDARD, declared=0.0), calls(), fleet)
    assert (worth == 0.5).all()
    assert (nothing == nothing[0]).all()
