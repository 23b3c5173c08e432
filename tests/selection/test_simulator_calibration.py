from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tiphys_models.selection.cloud.bill import SCHEDULING_TIMES, UNMEASURED, scheduling_s, serverless_usd
from tiphys_models.selection.cloud.score import DIVISORS, cost_at_sla
from tiphys_models.selection.planners.registry import HEURISTICS, make_planners
from tiphys_models.selection.selectors.registry import make_selector
from tiphys_models.selection.sim.calibration import scheduling_time
from tiphys_models.selection.sim.episode import Planners
from tiphys_models.selection.sim.workloads import WORKLOADS, make_workload
from tiphys_models.selection.train.playing import Court


def test_a_scheduling_time_is_measured_in_seconds_a_call() -> None:
    found = scheduling_time("first-fit")
    assert 0 < found.seconds(4) < 0.1


def test_scheduling_costs_what_serverless_memory_costs() -> None:
    assert serverless_usd(1.0) == pytest.approx(2.4e-5)
    assert scheduling_s("one-per-host", 0) == 0.0
    assert scheduling_s("nobody-measured-it", 3) == UNMEASURED.base_s


def test_every_heuristic_is_measured_and_cheap() -> None:
    for name in HEURISTICS:
        assert SCHEDULING_TIMES[name].seconds(8) < 0.1


@pytest.mark.parametrize("workload", WORKLOADS)
def test_divisors_expect_as_many_tasks_as_workloads_have(workload: str) -> None:
    found = np.mean([len(make_workload(workload, "calibration", seed)) for seed in range(10)])
    assert found == pytest.approx(DIVISORS[workload].tasks, rel=0.05)


def test_bills_rise_and_violations_fall_with_the_price_of_a_violation() -> None:
    court = Court(Planners(make_planners(HEURISTICS)), "validation", (0,), 60)
    cheap, dear = (
        court.bills(lambda w, d: make_selector("preview", HEURISTICS, w, d, 0), partial(cost_at_sla, missed_usd=usd))
        for usd in (1e-6, 1e-2)
    )
    for workload in WORKLOADS:
        assert cheap[workload][0] < dear[workload][0]
        assert cheap[workload][1] > dear[workload][1]
