"""`rule+`, its looks, and HPA as it is today."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.scaling.states import state
from tiphys_models.scaling.control import Control
from tiphys_models.scaling.hpa import HPA, RPSHPA, Behavior
from tiphys_models.scaling.looks import LookReading, Need, Ordered, overrun, raised
from tiphys_models.scaling.protocol import decide
from tiphys_models.scaling.registry import make_agent
from tiphys_models.scaling.rule_plus import SETTING, RulePlus, control_of
from tiphys_models.scaling.rules import Rule
from tiphys_models.scaling.seen import seen_of

ORDERED = Ordered(2, 2, 300.0, 16, 640.0)
NEED = Need(1 / 0.6, 1.1, 0.4, 600.0, 5.0)


def test_headroom_is_the_controller_s_where_there_is_one() -> None:
    rule = RulePlus()
    assert decide(rule, state(240.0, 240.0)).cpu_m == decide(Rule(SETTING), state(240.0, 240.0)).cpu_m == 437
    assert decide(rule, state(240.0, 240.0, headroom=1.2)).cpu_m == 485


def test_only_pods_that_are_ready_carry_the_need() -> None:
    starting = state(600.0, 600.0, replicas=3, ready=2, headroom=1.0)
    assert decide(RulePlus(), starting).cpu_m == 505
    assert decide(RulePlus(), replace(starting, ready=0)).cpu_m > 0
    leaving = state(300.0, 300.0, 300.0, 300.0, replicas=3, headroom=1.0)
    found = decide(RulePlus(), leaving)
    assert (found.replicas, found.cpu_m) == (1, 505)  # the two that go carry nothing any more


def test_standing_pods_are_as_many_as_the_last_jump_took_and_cost_no_cpu() -> None:
    rates = (100.0, 700.0, *([100.0] * 12))
    without, with_them = (decide(RulePlus(), state(*rates, replicas=2, headroom=1.0, stands=stands)) for stands in (False, True))
    assert (without.replicas, with_them.replicas) == (1, 2)
    assert with_them.replicas * with_them.cpu_m <= without.cpu_m + 5


def test_a_user_says_what_share_to_keep() -> None:
    assert control_of(make_agent("rule+", 0.97)) == Control(objective=0.97)
    assert control_of(make_agent("rule")) is None


def test_a_look_raises_what_is_short() -> None:
    found = raised(LookReading(500.0, 400.0), ORDERED, NEED, 3.0)
    assert found is not None
    assert found == (2, 550.0)  # 917m for what comes, 167m for what waits: in two pods, and 5m to spare


def test_a_look_leaves_alone_what_serves_its_queue_or_keeps_up() -> None:
    assert raised(LookReading(500.0, 50.0), ORDERED, NEED) is None
    assert not overrun(LookReading(200.0, 4000.0), ORDERED, NEED)


def test_a_look_takes_nothing_back() -> None:
    large = replace(ORDERED, replicas=9, cpu_m=640.0)
    assert raised(LookReading(1500.0, 4000.0), replace(large, ready=2), NEED) is None
    few = raised(LookReading(900.0, 1000.0), ORDERED, NEED)
    assert few == (3, 640.0)


def test_hpa_counts_starting_pods_as_idle_before_it_adds_more() -> None:
    hot = seen_of([state(100.0, replicas=4, ready=2)])
    hot.used_cpu_m[0, -1] = 950.0
    assert HPA().answer(hot).replicas.tolist() == [4]
    hotter = seen_of([state(100.0, replicas=4, ready=2)])
    hotter.used_cpu_m[0, -1] = 1900.0
    assert HPA().answer(hotter).replicas.tolist() == [5]


def test_hpa_without_a_ready_pod_holds() -> None:
    assert HPA().answer(seen_of([state(100.0, replicas=3, ready=0)])).replicas.tolist() == [3]


def test_behavior_limits_what_hpa_does() -> None:
    busy = seen_of([state(100.0, replicas=2)])
    busy.used_cpu_m[0, -1] = 20_000.0
    slow = Behavior(up_pods=1, up_percent=10)
    assert HPA(behavior=slow).answer(busy).replicas.tolist() == [3]
    steady = Behavior(up_stabilisation_s=30.0)
    busy.used_cpu_m[0, -2] = 800.0
    assert HPA(behavior=steady).answer(busy).replicas.tolist() == [2]
    calm = seen_of([state(100.0, replicas=8)])
    calm.used_cpu_m[0, -20:] = 300.0
    assert HPA(behavior=Behavior(down_percent=50)).answer(calm).replicas.tolist() == [4]
    near = seen_of([state(100.0, replicas=2)])
    near.used_cpu_m[0, -20:] = 860.0
    assert HPA(behavior=Behavior(up_tolerance=0.05)).answer(near).replicas.tolist() == [3]


@pytest.mark.parametrize(("rate", "expected"), [(480.0, 2), (500.0, 2), (600.0, 3), (30_000.0, 6), (100.0, 1)])
def test_rps_hpa_counts_requests(rate: float, expected: int) -> None:
    seen = seen_of([state(*([rate] * 20), replicas=2)])
    assert RPSHPA().answer(seen).replicas.tolist() == [expected]


def test_rps_hpa_without_a_rate_holds() -> None:
    seen = seen_of([state(100.0, replicas=3)])
    seen.rates[:] = np.nan
    assert RPSHPA().answer(seen).replicas.tolist() == [3]
