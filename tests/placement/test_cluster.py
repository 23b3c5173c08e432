"""The simulated cluster against closed forms and against itself."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.placement.small import plain_function, small_workload, steady
from tiphys_models.placement.rules import LeastConnections, StaticRank, WarmFirst
from tiphys_models.placement.sim.episode import CLAIRVOYANT, CallRecords, compile_rule, new_tape, play, simulate
from tiphys_models.placement.sim.metrics import inflight, jain, lower_share, remaining
from tiphys_models.placement.sim.run import ARGMAX
from tiphys_models.placement.sim.scenario import NODE_LOSS, FaasScenario, NodeEvent
from tiphys_models.placement.sim.workloads import CallWorkload

pytestmark = pytest.mark.timeout(60, func_only=True)
CALLS = 120_000


def one_node(workload: CallWorkload, memory_mib: int, memory_gib: float, cores: float) -> CallRecords:
    class OneNode(FaasScenario):
        def cores(self) -> np.ndarray:
            return np.array([cores])

        def capacity_bytes(self) -> np.ndarray:
            return np.array([memory_gib * 2**30])

    scenario = OneNode(nodes=1, period_s=1e6)
    rule = compile_rule(LeastConnections(), workload, 1)
    return play(workload, rule, scenario, new_tape(len(workload), 1, 0), ARGMAX, (plain_function(memory_mib),))


def erlang_c(servers: int, load: float) -> float:
    rho = load / servers
    top = load**servers / math.factorial(servers) / (1 - rho)
    return top / (sum(load**k / math.factorial(k) for k in range(servers)) + top)


@pytest.mark.slow
def test_memory_slots_queue_as_erlang_says() -> None:
    """As many containers as cores: M/M/c, mean wait C(c, a) / (c - a)."""
    rng = np.random.default_rng(1)
    servers, load = 4, 3.0
    workload = steady(np.cumsum(rng.exponential(1 / load, CALLS)), rng.exponential(1.0, CALLS))
    records = one_node(workload, memory_mib=256, memory_gib=1.0, cores=servers)
    wait = float((records.start_s - records.arrival_s).mean())
    assert wait == pytest.approx(erlang_c(servers, load) / (servers - load), rel=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("work", ["deterministic", "exponential", "two-point"])
def test_shared_cores_are_insensitive_to_the_distribution_of_work(work: str) -> None:
    """One core and memory for everybody: M/G/1 with processor sharing, mean sojourn 1 / (1 - rho) for any work of mean 1."""
    rng = np.random.default_rng(2)
    rho = 0.6
    sizes = {
        "deterministic": np.ones(CALLS),
        "exponential": rng.exponential(1.0, CALLS),
        "two-point": np.where(rng.uniform(size=CALLS) < 0.9, 0.5, 5.5),
    }[work]
    workload = steady(np.cumsum(rng.exponential(1 / rho, CALLS)), sizes)
    records = one_node(workload, memory_mib=16, memory_gib=4.0, cores=1)
    assert float(records.completion_s.mean()) == pytest.approx(1 / (1 - rho), rel=0.06)


def test_the_remaining_time_of_the_first_decision_is_the_sum_of_completion_times() -> None:
    records = simulate(small_workload(), WarmFirst(), FaasScenario(nodes=3))
    total = float(records.completion_s.sum())
    assert float(remaining(records)[0]) == pytest.approx(total, rel=1e-12)


def test_every_call_completes_and_nobody_is_faster_than_alone() -> None:
    workload = small_workload()
    records = simulate(workload, StaticRank(), FaasScenario(nodes=2))
    assert np.isfinite(records.finish_s).all()
    assert (records.start_s >= records.arrival_s).all()
    assert (records.finish_s > records.start_s).all()


def test_the_same_seed_gives_the_same_records() -> None:
    first, second = (simulate(small_workload(), LeastConnections(), FaasScenario(nodes=3)) for _ in range(2))
    np.testing.assert_array_equal(first.finish_s, second.finish_s)
    other = simulate(small_workload(seed=1), LeastConnections(), FaasScenario(nodes=3))
    assert not np.array_equal(first.finish_s, other.finish_s)


def test_without_reuse_every_call_starts_cold() -> None:
    workload = small_workload()
    assert simulate(workload, WarmFirst(), FaasScenario(nodes=3, reuse=False)).cold.all()
    assert not simulate(workload, WarmFirst(), FaasScenario(nodes=3)).cold.all()


def test_a_short_keep_alive_costs_cold_starts() -> None:
    workload = small_workload(120)
    kept = simulate(workload, WarmFirst(), FaasScenario(nodes=3, memory_gib=16))
    dropped = simulate(workload, WarmFirst(), FaasScenario(nodes=3, memory_gib=16, keep_alive_s=0.5))
    assert dropped.cold.sum() > kept.cold.sum()


def test_capped_shares_and_interference_slow_calls_down() -> None:
    workload = small_workload()
    free = simulate(workload, LeastConnections(), FaasScenario(nodes=3)).completion_s.mean()
    assert simulate(workload, LeastConnections(), FaasScenario(nodes=3, capped=True)).completion_s.mean() > free
    assert simulate(workload, LeastConnections(), FaasScenario(nodes=3, interference=0.2)).completion_s.mean() > free


def test_calls_of_a_lost_node_run_elsewhere_and_keep_their_arrival() -> None:
    workload = small_workload(120)
    lost_at_s = float(workload.arrival_s[60])
    scenario = FaasScenario(nodes=3, events=(NodeEvent(lost_at_s, 1, joins=False),))
    records = simulate(workload, LeastConnections(), scenario)
    assert np.isfinite(records.finish_s).all()
    assert not ((records.node == 1) & (records.finish_s > lost_at_s)).any()
    assert (simulate(workload, LeastConnections(), replace(NODE_LOSS, nodes=4)).node >= 0).all()


def test_knowing_everything_beats_counting_calls() -> None:
    workload = small_workload(100)
    scenario = FaasScenario(nodes=4)
    assert (
        simulate(workload, CLAIRVOYANT, scenario).completion_s.mean() < simulate(workload, LeastConnections(), scenario).completion_s.mean()
    )


def test_metrics_count_what_they_say() -> None:
    def made(finish_s: list[float]) -> CallRecords:
        n = len(finish_s)
        return CallRecords(
            np.arange(n, dtype=float), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n), np.array(finish_s), np.ones(n, bool)
        )

    slow, fast = made([4.0, 4.0]), made([1.0, 2.0])
    assert inflight(slow, np.array([0.5, 1.5, 4.5])).tolist() == [1, 2, 0]
    assert lower_share(fast, [slow]) == pytest.approx(0.75, abs=0.03)
    assert lower_share(slow, [fast]) == 0
    assert jain([1, 1, 1]) == pytest.approx(1)
    assert jain([1, 0, 0]) == pytest.approx(1 / 3)
