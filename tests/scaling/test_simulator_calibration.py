from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiphys_models.scaling.rules import Rule, RuleSetting
from tiphys_models.scaling.sim.calibration import Bench, JudgedSetting, search
from tiphys_models.scaling.sim.settling import settle


def judged(attained: float, cost: float) -> JudgedSetting:
    return JudgedSetting(RuleSetting(), {"flash": attained, "bursty": 0.5}, {"flash": cost, "bursty": cost})


def test_what_is_required_comes_before_what_it_costs() -> None:
    cheap, enough, dear = judged(0.93, 1.0), judged(0.95, 1.2), judged(0.99, 1.5)
    assert sorted([dear, cheap, enough], key=lambda j: j.order) == [enough, dear, cheap]
    assert cheap.missing == pytest.approx(0.02)


def test_the_search_ends_where_no_step_along_the_grid_helps() -> None:
    bench, said = Bench("train", (0,), ("flash",), 300), list[str]()
    found = search(Rule, bench, np.random.default_rng(1), said.append, tries=4)
    assert "best of 4" in said[0]
    for other in (replace(found.setting, headroom=1.3), replace(found.setting, keep=80), replace(found.setting, pod_m=160.0)):
        assert found.order <= bench.judge(Rule, other).order


def test_the_rule_s_sizes_settle_near_the_smallest_sufficient_limit() -> None:
    for run in settle(Rule(), "validation", 0):
        assert 0.95 < run.settled_m / run.smallest_m < 1.3
