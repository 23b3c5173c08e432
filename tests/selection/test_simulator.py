from __future__ import annotations

import numpy as np
import pytest

from tests.selection.small import KINDS
from tiphys_models.base.errors import InvalidInput
from tiphys_models.selection.cloud.bill import serverless_usd
from tiphys_models.selection.cloud.hosts import B2S, HostType
from tiphys_models.selection.cloud.outlook import finish_times
from tiphys_models.selection.cloud.score import Outcome
from tiphys_models.selection.cloud.state import Plan
from tiphys_models.selection.cloud.tasks import AIOTBENCH, ANY_POOL
from tiphys_models.selection.sim.cloud import Cloud
from tiphys_models.selection.sim.scenario import CloudScenario
from tiphys_models.selection.sim.workloads import TaskWorkload, make_workload

FLAT = HostType("flat", 2, 4096, 30720, 0.36, B2S.power_w, 0.0)  # 1e-4 USD a second, no latency
HOUR_S = 3600.0


def by_hand(*tasks: tuple[float, float], deadline_s: float = 100.0) -> TaskWorkload:
    """(created, work) each."""
    created, work = (np.array(column, np.float64) for column in zip(*tasks, strict=True))
    same = np.full(len(tasks), 1.0)
    return TaskWorkload(
        "hand", "test", 0, 1, 10.0, AIOTBENCH, created, np.zeros(len(tasks), np.int64), work,
        deadline_s * same, 500 * same, 100 * same, np.full(len(tasks), ANY_POOL),
    )  # fmt: skip


def cloud(workload: TaskWorkload, count: int = 2, *, resume_s: float = 0.0, linger: int = 0) -> Cloud:
    return Cloud(workload, CloudScenario(kinds=((FLAT, count),), resume_s=resume_s, linger_intervals=linger))


def play(it: Cloud, *plans: list[int], scheduling_s: float = 0.0) -> Cloud:
    """One plan an interval, then on until everything has ended."""
    for hosts in plans:
        it.place(Plan(np.array(hosts, np.int64)), scheduling_s)
        it.advance()
    while not it.over:
        it.advance()
    return it


def test_one_task_alone_has_the_response_cost_and_energy_computed_by_hand() -> None:
    it = play(cloud(by_hand((0, 12.0))), [0], scheduling_s=1.0)
    assert it.responses_s().tolist() == [pytest.approx(7.0)]  # 1 s scheduling, 12 core-s on two cores
    assert it.usd == [pytest.approx(10e-4)]  # the whole interval, though it ran for 6 s
    assert it.joules == [pytest.approx(10 * 105.0)]  # 60 % CPU
    assert it.ledger()[0].usd == pytest.approx(10e-4 + serverless_usd(1.0))


def test_latency_of_the_host_delays_the_start() -> None:
    it = Cloud(by_hand((0, 12.0)), CloudScenario(kinds=KINDS))
    play(it, [4])
    assert it.responses_s()[0] == pytest.approx(6.076)


def test_two_tasks_share_and_the_second_interval_is_billed() -> None:
    it = play(cloud(by_hand((0, 8.0), (0, 14.0))), [0, 0])
    assert it.responses_s().tolist() == [pytest.approx(8.0), pytest.approx(11.0)]
    assert it.usd == [pytest.approx(10e-4)] * 2
    assert it.joules == [pytest.approx(10 * 117.0), pytest.approx(10 * 78.2)]


def test_a_later_task_slows_the_first() -> None:
    it = play(cloud(by_hand((0, 24.0), (10, 8.0))), [0], [0])
    # 20 core-s done after 10 s; then one core each: 4 left end at 14, the other has 4 left of 8: 4 + 2
    assert it.responses_s().tolist() == [pytest.approx(14.0), pytest.approx(6.0)]


def test_bills_follow_cpu_seconds_and_add_up() -> None:
    it = play(cloud(by_hand((0, 24.0), (10, 8.0))), [0], [0], scheduling_s=0.5)
    first, second = it.ledger()[0], it.ledger()[1]
    # 19 core-s in interval 0; interval 1: half a second alone, then shared
    assert (first + second).usd == pytest.approx(sum(it.usd) + 2 * serverless_usd(0.5))
    assert (first + second).joules == pytest.approx(sum(it.joules))
    shared = 10e-4 * 8.0 / (5.0 + 8.0)
    assert second.usd == pytest.approx(shared + serverless_usd(0.5))


def test_a_task_left_waiting_is_presented_again() -> None:
    it = cloud(by_hand((0, 12.0)))
    it.place(Plan(np.array([-1])), 0.0)
    it.advance()
    assert it.tasks().age_s.tolist() == [10.0]
    assert it.usd == [0.0]
    play(it, [1])
    assert it.responses_s()[0] == pytest.approx(16.0)


def test_a_sleeping_host_resumes_before_it_works_and_is_billed_for_it() -> None:
    it = play(cloud(by_hand((0, 12.0)), resume_s=15.0), [0])
    assert it.responses_s()[0] == pytest.approx(21.0)
    assert it.usd == [pytest.approx(10e-4)] * 3
    assert it.joules[0] == pytest.approx(752.0)  # on, and idle
    assert it.ledger()[0].usd == pytest.approx(sum(it.usd))


def test_an_awake_host_needs_no_resuming() -> None:
    it = play(cloud(by_hand((0, 24.0), (10, 8.0)), resume_s=3.0), [0], [0])
    assert it.responses_s()[1] < 8.1


def test_a_lingering_host_stays_on_and_whoever_used_it_pays() -> None:
    it = cloud(by_hand((0, 12.0), (70, 12.0)), linger=2, resume_s=5.0)
    it.place(Plan(np.array([0])), 0.0)
    for _ in range(5):
        it.advance()
    assert it.usd == [pytest.approx(10e-4)] * 4 + [0.0]  # in use until 11 s, then on for two more intervals
    assert it.state().awake.tolist() == [False, False]
    assert it.ledger()[0].usd == pytest.approx(sum(it.usd))


def test_violations_count_tasks_beyond_their_deadline() -> None:
    it = play(cloud(by_hand((0, 12.0), (0, 16.0), deadline_s=7.0)), [0, 1])
    assert it.violated().tolist() == [0.0, 1.0]


def test_a_plan_without_room_is_refused() -> None:
    it = cloud(by_hand(*[(0, 10.0)] * 9))
    with pytest.raises(InvalidInput, match="do not fit"):
        it.place(Plan(np.zeros(9, np.int64)), 0.0)
    with pytest.raises(InvalidInput, match="a plan for 2 tasks"):
        it.place(Plan(np.zeros(2, np.int64)), 0.0)


def test_the_compiled_cloud_agrees_with_the_closed_form() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        works = rng.uniform(2, 60, int(rng.integers(1, 8)))
        it = play(cloud(by_hand(*[(0, w) for w in works])), [0] * len(works))
        ends, busy = finish_times(2, works.tolist(), 10.0)
        assert it.responses_s() == pytest.approx(ends)
        assert np.array(it.cpu_sum) * 20 == pytest.approx(busy)


@pytest.mark.parametrize(
    "scenario", [CloudScenario(), CloudScenario(resume_s=12.0), CloudScenario(linger_intervals=3, resume_s=5.0)], ids=str
)
def test_draining_tells_what_really_happens_when_nothing_more_arrives(scenario: CloudScenario) -> None:
    it = Cloud(make_workload("regime", "validation", 3, 4), scenario)
    rng = np.random.default_rng(1)
    while not it.over:
        plan, seconds = Plan(rng.integers(0, 6, len(it.waiting))), 0.2
        last = it._next == len(it.workload)
        before = Outcome(sum(it.usd), sum(it.joules))
        ended = it.responses_s().sum(), it.violated().sum()
        expected = it.drained(plan, seconds)
        it.place(plan, seconds)
        it.advance()
        if last:
            break
    while not it.over or it._idle_left.any():
        it.advance()
    assert expected.usd - serverless_usd(0.2) == pytest.approx(sum(it.usd) - before.usd)
    assert expected.joules == pytest.approx(sum(it.joules) - before.joules)
    assert expected.response_s == pytest.approx(it.responses_s().sum() - ended[0])
    assert expected.violations == it.violated().sum() - ended[1]


def test_a_clone_of_the_simulation_changes_nothing_in_the_original() -> None:
    it = Cloud(make_workload("regime", "validation", 1, 30))
    for _ in range(10):
        it.place(Plan(np.zeros(len(it.waiting), np.int64) + it.interval), 0.01)
        it.advance()
    other = it.clone()
    frozen = it.state().digest(it.tasks())
    for _ in range(5):
        other.place(Plan(np.full(len(other.waiting), 70)), 0.01)
        other.advance()
    assert it.state().digest(it.tasks()) == frozen
    assert it.interval == 10
    assert len(it.usd) == 10


def test_states_hold_the_expected_work_of_tasks_and_not_the_true_one() -> None:
    it = Cloud(make_workload("stationary", "validation", 2, 10))
    while not len(it.waiting):
        it.advance()
    waiting = it.tasks()
    assert set(waiting.work_core_s) <= {a.work_core_s for a in AIOTBENCH}
    # two clouds that differ in hidden work only look the same
    it.workload.work_core_s[:] *= 3
    assert it.tasks().work_core_s.tolist() == waiting.work_core_s.tolist()
