from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.score import DEFAULT, DIVISORS, JOULES_PER_KWH, Outcome
from tiphys_models.selection.cloud.state import CloudState, Plan
from tiphys_models.selection.cloud.tasks import Tasks
from tiphys_models.selection.planners.registry import COMPARATORS, HEURISTICS, candidates, make_planners
from tiphys_models.selection.selectors.encoding import GENERAL_NAMES, encode_general, encode_paper
from tiphys_models.selection.selectors.registry import entries as selector_entries
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_models.selection.selectors.ucb import UCB
from tiphys_models.selection.sim.choosers import CandidateOracle, RandomCandidates, Selected, Twin
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.episode import CandidateChooser, FixedCandidate, Planners, run
from tiphys_models.selection.sim.labels import collect
from tiphys_models.selection.sim.scenario import SENSITIVITY, CloudScenario
from tiphys_models.selection.sim.workloads import WORKLOADS, TaskWorkload, make_workload, read_workload

REGIME = DIVISORS["regime"]


def planners() -> Planners:
    return Planners(make_planners(HEURISTICS))


@pytest.mark.parametrize("name", [*HEURISTICS, *COMPARATORS])
@pytest.mark.parametrize("workload", [*WORKLOADS, "stress"])
def test_no_task_is_lost_and_bills_add_up(name: str, workload: str) -> None:
    tasks = make_workload(workload, "validation", 5, 6 if workload == "stress" else 60)
    found = run(tasks, Planners(make_planners([name])), FixedCandidate(name))
    assert found.tasks == len(tasks)
    total = sum(found.ledger.values(), Outcome())
    assert total.usd == pytest.approx(found.cost_usd)
    assert total.joules == pytest.approx(found.energy_kwh * JOULES_PER_KWH)
    assert total.response_s == pytest.approx(found.response_s * found.tasks)
    assert total.violations == pytest.approx(found.sla_violation * found.tasks)
    assert total.tasks == len(tasks)
    watts = found.energy_kwh * JOULES_PER_KWH / 10 / sum(1 for _ in found.usd)
    assert 0 < watts < 137 * 100


@pytest.mark.parametrize("scenario", SENSITIVITY, ids=lambda s: str(s.name))
def test_every_sensitivity_case_can_be_played(scenario: CloudScenario) -> None:
    tasks = make_workload("regime", "validation", 5, 40, mix=scenario.mix, within_interval=scenario.within_interval)
    found = run(tasks, planners(), FixedCandidate("cost-lean"), scenario)
    assert found.tasks == len(tasks)
    assert sum(found.ledger.values(), Outcome()).usd == pytest.approx(found.cost_usd)


def test_the_three_corners_are_where_physics_puts_them() -> None:
    tasks = make_workload("stationary", "validation", 0, 300)
    cost, energy, spread = (run(tasks, planners(), FixedCandidate(name)) for name in HEURISTICS)
    assert cost.cost_usd < spread.cost_usd < energy.cost_usd
    assert energy.energy_kwh < cost.energy_kwh < spread.energy_kwh
    assert spread.response_s < energy.response_s < cost.response_s
    assert spread.sla_violation < 0.05 < cost.sla_violation


def test_bounds_beat_every_fixed_planner() -> None:
    tasks = make_workload("regime", "validation", 5, 150)
    kept = planners()

    def j(chooser: CandidateChooser) -> float:
        r = run(tasks, kept, chooser)
        return REGIME.j(DEFAULT, r.cost_usd, r.energy_kwh, r.response_s, r.sla_violation, 150)

    fixed = min(j(FixedCandidate(name)) for name in HEURISTICS)
    twin = j(Twin(DEFAULT, REGIME, np.random.default_rng(0)))
    assert j(CandidateOracle(DEFAULT, REGIME)) < twin < fixed < j(RandomCandidates(np.random.default_rng(0)))


def test_the_same_seed_gives_the_same_choices_cost_and_energy() -> None:
    def chosen() -> tuple[object, ...]:
        tasks = make_workload("regime", "validation", 4, 120)
        found = run(tasks, planners(), Selected(UCB(HEURISTICS), DEFAULT, REGIME))
        return found.chosen, found.cost_usd, found.energy_kwh

    assert chosen() == chosen()


@pytest.fixture(scope="module")
def all_planners() -> Planners:
    """Every candidate; plans are kept by what was seen, so that selectors that meet the same states need not wait for them again."""
    return Planners(make_planners(candidates()))


@pytest.mark.parametrize("name", [entry.name for entry in selector_entries() if not entry.live_only])
@pytest.mark.parametrize("interval", [30, 55])
def test_another_future_changes_no_choice(name: str, interval: int, all_planners: Planners) -> None:
    """What arrives after an interval, permuted: choices up to it stay the same, for every selector there is."""
    tasks = make_workload("regime", "validation", 0, 65)  # load rises after 50
    other = tasks.with_future_permuted(interval, np.random.default_rng(1))
    assert other.application.tolist() != tasks.application.tolist()

    def chosen(workload: TaskWorkload) -> tuple[str | None, ...]:
        selector = make_selector(name, all_planners.names, DEFAULT, REGIME, 0)
        return run(workload, all_planners, Selected(selector, DEFAULT, REGIME)).chosen[: interval + 1]

    found = chosen(tasks)
    assert found == chosen(other)
    assert any(found)


def test_the_oracle_does_depend_on_the_future() -> None:
    tasks = make_workload("regime", "validation", 6, 110)
    other = replace(tasks, work_core_s=tasks.work_core_s[::-1].copy())  # what may be known stays the same
    first, second = (run(w, planners(), CandidateOracle(DEFAULT, REGIME)).chosen for w in (tasks, other))
    assert first[:20] != second[:20]


def test_plans_of_the_same_workload_are_computed_once() -> None:
    kept = planners()
    tasks = make_workload("stationary", "validation", 1, 60)
    run(tasks, kept, FixedCandidate("cost-lean"))
    calls = kept.calls
    run(tasks, kept, FixedCandidate("cost-lean"))
    assert kept.calls == calls


def test_labels_say_what_each_candidate_costs() -> None:
    tasks = make_workload("regime", "validation", 2, 60)
    labels = collect(tasks, planners(), FixedCandidate("one-per-host"), encode_general, every=2)
    assert labels.features.shape[1] == len(GENERAL_NAMES)
    assert labels.outcomes.shape == (len(labels.features), 3, 5)
    usd, joules, response = (labels.outcomes[:, :, k].sum(axis=0) for k in range(3))
    assert usd.argmin() == HEURISTICS.index("cost-lean")
    assert joules.argmin() == HEURISTICS.index("energy-lean")
    assert response.argmin() == HEURISTICS.index("one-per-host")
    assert (labels.outcomes[:, :, 4] == labels.tasks[:, None]).all()
    assert (labels.j(DEFAULT, REGIME) > 0).all()


def test_encodings_are_finite_and_fixed_in_size() -> None:
    it = Cloud(make_workload("regime", "validation", 2, 60))
    for _ in range(40):
        state, waiting = it.state(), it.tasks()
        general, paper = encode_general(state, waiting), encode_paper(state, waiting)
        assert len(general) == len(GENERAL_NAMES)
        assert len(paper) == 428
        assert np.isfinite(general).all()
        assert np.isfinite(paper).all()
        it.place(Plan(np.arange(len(it.waiting)) + it.interval), 0.01)
        it.advance()


def test_splits_and_seeds_give_different_workloads() -> None:
    made = {
        make_workload("regime", split, seed, 30).work_core_s[:3].tobytes() for split in ("train", "test", "calibration") for seed in (0, 1)
    }
    assert len(made) == 6
    again = make_workload("regime", "test", 1, 30)
    assert again.work_core_s.tobytes() == make_workload("regime", "test", 1, 30).work_core_s.tobytes()


def test_workloads_have_the_rates_they_promise() -> None:
    counts = [len(make_workload("stationary", "validation", s)) for s in range(8)]
    assert np.mean(counts) == pytest.approx(1200, rel=0.05)
    regime = make_workload("regime", "validation", 0)
    blocks = np.bincount(regime.presented_at() // 50, minlength=20)
    assert sorted({int(np.argmin(abs(np.array([15, 60, 400]) - b))) for b in blocks}) == [0, 1, 2]
    uniform = make_workload("stationary", "validation", 0, within_interval=True)
    assert (uniform.presented_at() * 10 >= uniform.created_s - 1e-6).all()
    assert len(np.unique(uniform.created_s)) > 1000


@pytest.mark.parametrize("workload", ["stress"])
def test_stress_exercises_constraints(workload: str) -> None:
    tasks = make_workload(workload, "validation", 1, 8)

    class Crowd:
        name = "crowd"

        def assign(self, state: CloudState, tasks: Tasks, seed: int) -> Plan:
            return Plan(np.arange(len(tasks)) % 12)  # ignores room and pools

    kept = Planners({"crowd": Crowd()})
    found = run(tasks, kept, FixedCandidate("crowd"))
    assert kept.repaired == kept.calls > 0
    assert found.tasks == len(tasks)


def csv_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_file_is_a_workload(tmp_path: Path) -> None:
    head = "arrival_s,cpu_core_s,ram_mib,disk_mib,deadline_class,application\n"
    tasks, digest = read_workload(csv_file(tmp_path, head + "12,10,500,100,2,b\n3,8,400,100,1.2,a\n31,12,500,100,2,b\n"))
    assert len(digest) == 64
    assert [a.name for a in tasks.applications] == ["a", "b"]
    assert tasks.applications[1].work_core_s == 11
    assert tasks.deadline_s.tolist() == [pytest.approx(1.2 * 4 + 1), 12.0, 12.0]
    found = run(tasks, planners(), FixedCandidate("one-per-host"))
    assert found.tasks == 3
    assert found.response_s > replace(tasks).work_core_s.mean() / 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("arrival_s,cpu_core_s\n1,2\n", "'ram_mib'"),
        ("arrival_s,cpu_core_s,ram_mib,disk_mib,deadline_class\n1,x,3,4,5\n", "line 2"),
        ("arrival_s,cpu_core_s,ram_mib,disk_mib,deadline_class\n1,2,3,4,5\n-1,2,3,4,5\n", "line 3"),
        ("arrival_s,cpu_core_s,ram_mib,disk_mib,deadline_class\n1e9,2,3,4,5\n", "line 2: arrives after"),
        ("arrival_s,cpu_core_s,ram_mib,disk_mib,deadline_class\n1,2,99999,4,5\n", "line 2: no host has 99999 MiB"),
        ("", "at least one line"),
    ],
)
def test_a_bad_csv_file_is_named_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_workload(csv_file(tmp_path, text))
