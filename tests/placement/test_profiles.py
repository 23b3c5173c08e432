"""Functions nobody has described: what serves then, and that measured run times contradict no profile that is true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.artifacts.shipped import WEIGHTS
from tiphys_models.placement.calls import FunctionProfile
from tiphys_models.placement.faasrank import FaaSRank
from tiphys_models.placement.rules import WarmFirst
from tiphys_models.placement.runs import ENOUGH, RunTimes, contradicted
from tiphys_models.placement.score_network import load_network
from tiphys_models.placement.sim.episode import simulate
from tiphys_models.placement.sim.functions import FUNCTIONS
from tiphys_models.placement.sim.scenario import LITTLE_MEMORY, NO_REUSE, PROFILED, FaasScenario, make_fleet, profiled_functions
from tiphys_models.placement.sim.workloads import make_workload

pytestmark = pytest.mark.timeout(60, func_only=True)

PROFILE = FunctionProfile(2.0, 5.0, 4.0, 8.0, 2.0)


@pytest.fixture(scope="module")
def shipped() -> FaaSRank:
    return FaaSRank(load_network(WEIGHTS / "faasrank.json"))


@pytest.mark.parametrize("scenario", PROFILED, ids=lambda s: s.name)
def test_with_some_functions_described_the_model_is_not_behind_the_rule(shipped: FaaSRank, scenario: FaasScenario) -> None:
    ratios = []
    for name in ("M2", "M5", "M8", "M10"):
        for seed in range(3):
            workload = make_workload(name, "test", seed)
            ratios.append(
                simulate(workload, shipped, scenario).completion_s.mean() / simulate(workload, WarmFirst(), scenario).completion_s.mean()
            )
    assert np.mean(ratios) <= 1.02


def test_with_nothing_described_the_rule_itself_decides(shipped: FaaSRank) -> None:
    workload, nobody = make_workload("M5", "test", 0), FaasScenario(profiled=0.0)
    np.testing.assert_array_equal(simulate(workload, shipped, nobody).node, simulate(workload, WarmFirst(), nobody).node)


def test_what_is_not_described_looks_like_the_mean_of_the_others() -> None:
    workload = make_workload("M5", "test", 0)
    scenario = FaasScenario(profiled=0.5)
    fleet, mask = make_fleet(scenario, workload), profiled_functions(scenario, workload)
    whole = make_fleet(replace(scenario, profiled=1.0), workload).profiles
    assert mask.sum() == 5
    np.testing.assert_array_equal(fleet.profiles[mask], whole[mask])
    np.testing.assert_allclose(fleet.profiles[~mask], np.tile(whole[mask].mean(axis=0), (5, 1)))
    assert (profiled_functions(scenario, make_workload("M5", "test", 1)) != mask).any()


@pytest.mark.parametrize("scenario", [FaasScenario(), LITTLE_MEMORY, NO_REUSE], ids=lambda s: s.name)
def test_no_true_profile_is_contradicted_however_long_calls_wait(shipped: FaaSRank, scenario: FaasScenario) -> None:
    windows = 0
    for name in ("M3", "M7", "M10"):
        workload = make_workload(name, "test", 0)
        records = simulate(workload, shipped, scenario)
        for index, f in enumerate(FUNCTIONS):
            profile = FunctionProfile(f.warm_s, f.cold_s, f.warm_work_core_s, f.cold_work_core_s, float(f.parallelism))
            calls = np.flatnonzero(workload.function == index)
            took_s = records.completion_s[calls[np.argsort(records.finish_s[calls])]].tolist()
            for end in range(ENOUGH, len(took_s) + 1):
                windows += 1
                assert not contradicted(profile, tuple(took_s[end - ENOUGH : end]))
    assert windows > 300


def test_a_profile_is_contradicted_by_the_mean_if_too_long_and_by_the_fastest_run_if_too_short() -> None:
    assert contradicted(PROFILE, (0.3,) * ENOUGH)
    assert not contradicted(PROFILE, (0.3,) * (ENOUGH - 1))
    assert not contradicted(PROFILE, (0.4,) * ENOUGH)
    assert contradicted(PROFILE, (16.1, *(60.0,) * (ENOUGH - 1)))
    assert not contradicted(PROFILE, (15.9, *(60.0,) * (ENOUGH - 1)))


def test_run_times_are_kept_of_so_many_functions_and_no_more() -> None:
    runs = RunTimes(max_functions=3)
    for index in range(50):
        for _ in range(ENOUGH):
            runs.learn(f"f{index}", 99.0, PROFILE)
    assert len(runs) == 3
    assert [f"f{i}" for i in range(50) if runs.contradict(f"f{i}")] == ["f47", "f48", "f49"]


@pytest.mark.parametrize("took_s", [-7200.0, float("nan"), float("inf")])
def test_a_clock_that_was_set_back_is_no_run_time(took_s: float) -> None:
    runs = RunTimes()
    for _ in range(ENOUGH):
        runs.learn("f", took_s, PROFILE)
    assert len(runs) == 0
