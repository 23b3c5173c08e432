"""Between two windows: when CPU grows, by how much, and what keeps it from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operator.scaling.small import NOW_S, host, measured, pod, policy, resizing, target, window
from tests.operator.scaling.test_decide import Fixed, view
from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.api.scaling_policy import ScalingPolicySpec
from tiphys_models.api.scaling_status import Size
from tiphys_models.scaling.control import Control
from tiphys_operator.scaling.decide import Outcome, View, decide_window
from tiphys_operator.scaling.judging import deciders_of
from tiphys_operator.scaling.raising import Glimpse, glimpse, look_every_s, overrun, raised
from tiphys_operator.scaling.room import Place
from tiphys_operator.scaling.seen import ScalingSeen
from tiphys_operator.scaling.series import Series

CPU_MS = 2.0
JUMP = Glimpse(NOW_S, rate=150.0, in_flight=100.0)
"""Two pods of 100m serve a hundred a second."""


def series(pod_name: str, *samples: tuple[float, float]) -> Series:
    return Series({"pod": pod_name}, tuple(t for t, _ in samples), tuple(v for _, v in samples))


def seen_policy(last: dict[str, Any] | None = None, **spec: Any) -> ScalingSeen:
    decision = {"number": 4, "at": "2027-01-15T08:00:00Z", "phase": "Done", "from": {"replicas": 2}, "applied": {"replicas": 2}}
    return policy({"observedGeneration": 1, "lastDecision": last or decision}, **spec)


def spec_of(found: ScalingSeen) -> ScalingPolicySpec:
    assert found.spec is not None
    return found.spec


def here(**changes: Any) -> View:
    pods = (pod("web-1"), pod("web-2"))
    return replace(view(measured(), target(), pods), **changes)


def outcome(seen: Glimpse = JUMP, looked: View | None = None, **spec: Any) -> Outcome | None:
    found = seen_policy(**spec)
    return raised(found, spec_of(found), looked or here(), seen, NOW_S)


def test_a_jump_is_met_by_what_arrives_and_by_what_waits() -> None:
    made = outcome()
    assert made is not None
    # (150 x 1.08 + (100 - 150 x 0.4 / 2) / 3 s) x 2 ms over two pods, and 5m spare
    assert made.decision.applied.cpu_milli == 200
    assert made.decision.wanted is not None
    assert made.decision.wanted.cpu_milli == 191
    assert made.decision.applied.replicas == made.decision.former.replicas == 2
    assert (made.decision.number, made.decision.phase, made.decision.reasons) == (5, "Intended", ["Backlog", "DesiredWithinRange"])


def test_the_step_counts_in_the_rates_and_the_wish_is_not_remembered() -> None:
    made = outcome()
    assert made is not None
    assert [mark.value for mark in made.memory.cpu.changes] == [10]
    assert not made.memory.cpu.highest, "later windows may want less at once"


def test_the_window_under_way_does_not_take_a_raise_back_and_the_next_one_may() -> None:
    made = outcome()
    assert made is not None
    status = {
        "observedGeneration": 1,
        "memory": made.memory.model_dump(by_alias=True),
        "lastDecision": made.decision.model_dump(by_alias=True),
    }
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    found = policy(status, vertical={"minCpuMilli": 50, "maxCpuMilli": 400, "behavior": behavior})
    grown = replace(here(), pods=(pod("web-1", cpu="200m"), pod("web-2", cpu="200m")))
    diluted = decide_window(found, spec_of(found), deciders_of(Fixed(2, 120.0), None), grown, NOW_S + 1)
    assert diluted.decision.applied.cpu_milli == 200
    assert "cpu-down: JustRaised" in diluted.decision.masked
    later = replace(grown, measured=measured(window(at_s=NOW_S + 15)))
    assert decide_window(found, spec_of(found), deciders_of(Fixed(2, 120.0), None), later, NOW_S + 16).decision.applied.cpu_milli == 120


def test_a_second_raise_replaces_what_the_first_one_kept() -> None:
    made = outcome()
    assert made is not None
    status = {"observedGeneration": 1, "memory": made.memory.model_dump(by_alias=True)}
    found = policy(status | {"lastDecision": made.decision.model_dump(by_alias=True)})
    grown = replace(here(), pods=(pod("web-1", cpu="200m"), pod("web-2", cpu="200m")))
    again = raised(found, spec_of(found), grown, Glimpse(NOW_S + 3, 260.0, 400.0), NOW_S + 3)
    assert again is not None
    (kept,) = again.memory.blocked
    assert (kept.bound, kept.until, kept.tries) == (again.decision.applied.cpu_milli, NOW_S + 18, 1)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Glimpse(NOW_S, 150.0, 30.0), "nobody waits too long yet"),
        (Glimpse(NOW_S, 90.0, 500.0), "what arrives fits: something else is slow"),
        (Glimpse(NOW_S, 0.0, 0.0), "nothing comes"),
    ],
)
def test_a_queue_or_a_rate_alone_is_no_reason(seen: Glimpse, why: str) -> None:
    found = seen_policy()
    assert not overrun(spec_of(found), here(), seen, CPU_MS), why
    assert outcome(seen) is None, why


@pytest.mark.parametrize(
    "spec",
    [
        {"vertical": {"minCpuMilli": 50, "maxCpuMilli": 100}},
        {"vertical": {"maxCpuMilli": 400, "behavior": {"scaleUp": {"selectPolicy": "Disabled"}}}},
        {"vertical": {"maxCpuMilli": 400, "behavior": {"scaleUp": {"tolerancePercent": 100}}}},
        {"vertical": None},
        {"agent": {}},
    ],
)
def test_bounds_limits_and_what_nobody_knows_leave_nothing_of_it(spec: dict[str, Any]) -> None:
    assert outcome(**spec) is None


def test_a_bound_and_a_rate_leave_part_of_it() -> None:
    bounded = outcome(vertical={"maxCpuMilli": 150})
    assert bounded is not None
    assert (bounded.decision.applied.cpu_milli, bounded.decision.reasons) == (150, ["Backlog", "TooMany"])
    rates = [{"type": "Percent", "value": 20, "periodSeconds": 15}]
    slow = outcome(vertical={"maxCpuMilli": 400, "behavior": {"scaleUp": {"policies": rates}}})
    assert slow is not None
    assert (slow.decision.applied.cpu_milli, slow.decision.reasons) == (120, ["Backlog", "ScaleUpLimit"])


def test_a_full_node_and_a_pending_resize_mask_it_as_in_a_window() -> None:
    node = host("n1", 160)
    full = outcome(looked=here(place=Place({"n1": node}, {"n1": 100})))
    assert full is not None
    assert full.decision.applied.cpu_milli == 160
    assert full.decision.masked == ["cpu-up: NodeCapacity"]
    assert full.masked
    waiting = pod("web-2", conditions=resizing("PodResizePending", "Deferred"))
    assert outcome(looked=here(pods=(pod("web-1"), waiting))) is None


@given(
    rate=st.floats(0, 1e5),
    waiting=st.floats(0, 1e6),
    most=st.integers(5, 200),
    free_m=st.integers(0, 4000),
)
@settings(max_examples=200, deadline=None)
def test_whatever_is_seen_a_raise_only_grows_only_cpu_and_stays_within_bound_and_node(
    rate: float, waiting: float, most: int, free_m: int
) -> None:
    node = host("n1", 100 + free_m)
    looked = here(place=Place({"n1": node}, {"n1": 100}))
    made = outcome(Glimpse(NOW_S, rate, waiting), looked, vertical={"minCpuMilli": 50, "maxCpuMilli": 10 * most})
    if made is None:
        return
    decision = made.decision
    assert decision.applied.replicas == decision.former.replicas
    # two pods share what is free on their node, and ask for half of their limit
    assert decision.former.cpu_milli < decision.applied.cpu_milli <= min(10 * most, 100 + free_m)


def test_a_glimpse_adds_up_the_last_samples_of_every_pod() -> None:
    completed = [series("web-1", (90, 500), (99, 1000), (100, 1050)), series("web-2", (98, 10), (100, 30))]
    flying = [series("web-1", (99, 0), (100, 40)), series("web-2", (98, 4), (100, 10))]
    seen = glimpse(completed, flying, "pod", ["web-1", "web-2"], after_s=95)
    assert seen == Glimpse(100, rate=50 + 10 + 40 + 3, in_flight=50)


def test_a_glimpse_leaves_out_pods_that_went_and_counters_that_began_anew() -> None:
    completed = [series("web-1", (99, 1000), (100, 50)), series("gone", (99, 0), (100, 900))]
    flying = [series("web-1", (99, 0), (100, 0)), series("gone", (99, 0), (100, 900)), series("new", (100, 7))]
    seen = glimpse(completed, flying, "pod", ["web-1", "new"], after_s=95)
    assert seen == Glimpse(100, rate=50, in_flight=7)


def test_old_samples_say_nothing() -> None:
    completed, flying = [series("web-1", (99, 0), (100, 50))], [series("web-1", (99, 0), (100, 40))]
    assert glimpse(completed, flying, "pod", ["web-1"], after_s=100) is None
    assert glimpse([series("web-1", (100, 50))], flying, "pod", ["web-1"], after_s=95) is None, "one sample has no pace"
    assert glimpse(completed, [], "pod", ["web-1"], after_s=95) is None, "nobody counts what waits"


def test_looks_come_five_to_a_window_and_never_more_often_than_every_second() -> None:
    assert [look_every_s(spec_of(policy(intervalSeconds=s))) for s in (5, 15, 60)] == [1.0, 3.0, 12.0]


NUMBERS = st.one_of(st.floats(0, 1e12), st.sampled_from([0.0, 1e-300, 1e15]))


@given(rate=NUMBERS, waiting=NUMBERS, cpu=st.sampled_from([50, 100, 200, 400]), replicas=st.integers(1, 10))
def test_whatever_a_look_sees_nothing_gets_smaller(rate: float, waiting: float, cpu: int, replicas: int) -> None:
    pods = tuple(pod(f"web-{n}", cpu=f"{cpu}m") for n in range(replicas))
    made = outcome(Glimpse(NOW_S, rate, waiting), view(measured(), target(replicas), pods))
    if made is not None:
        assert made.decision.applied.replicas == made.decision.former.replicas == replicas
        assert made.decision.applied.cpu_milli > made.decision.former.cpu_milli


CONTROL = Control()


def controlled(seen: Glimpse = JUMP, headroom: float = 1.5, looked: View | None = None, **spec: Any) -> Outcome | None:
    found = seen_policy(**{"agent": {"kind": "rule+", "requestCpuMicroseconds": 2000}} | spec)
    memory = found.status.memory.model_copy(update={"learned": LearnedMemory(headroom=headroom)})
    found = replace(found, status=found.status.model_copy(update={"memory": memory}))
    return raised(found, spec_of(found), looked or here(), seen, NOW_S, CONTROL)


def test_rule_plus_raises_pods_and_cpu_by_what_it_has_learned_and_nothing_shrinks_for_a_window() -> None:
    made = controlled(Glimpse(NOW_S, 450.0, 400.0))
    assert made is not None
    # 450 x 1.5 x 2 ms is 1350m: four pods that may grow to 400m; until they are there, two have as much as they may
    assert (made.decision.wanted, made.decision.applied) == (Size(replicas=4, cpu_milli=400), Size(replicas=4, cpu_milli=400))
    assert made.decision.reasons == ["Backlog", "DesiredWithinRange", "DesiredWithinRange"]
    assert {(b.move, b.bound, b.reason) for b in made.memory.blocked} == {
        ("cpu-down", 400, "JustRaised"),
        ("replicas-down", 4, "JustRaised"),
    }
    assert [mark.value for mark in made.memory.replicas.changes] == [2]
    status = {"memory": made.memory.model_dump(by_alias=True), "lastDecision": made.decision.model_dump(by_alias=True)}
    grown = replace(view(measured(), target(4), [pod(f"web-{n}", cpu="400m") for n in range(4)]))
    under_way = decide_window(policy(status), spec_of(policy(status)), deciders_of(Fixed(1, 100.0), None), grown, NOW_S + 1)
    assert under_way.decision.applied == Size(replicas=4, cpu_milli=400)


def test_headroom_that_was_learned_raises_further() -> None:
    some, more = controlled(headroom=1.0), controlled(headroom=1.5)
    assert some is not None
    assert more is not None
    assert some.decision.applied.cpu_milli < more.decision.applied.cpu_milli


def test_pods_that_quotas_or_bounds_do_not_allow_are_not_raised() -> None:
    bounded = controlled(Glimpse(NOW_S, 450.0, 400.0), horizontal={"minReplicas": 1, "maxReplicas": 3})
    assert bounded is not None
    assert bounded.decision.applied.replicas == 3
    fixed = controlled(Glimpse(NOW_S, 450.0, 400.0), horizontal=None)
    assert fixed is not None
    assert fixed.decision.applied == Size(replicas=2, cpu_milli=400)
    unscheduled = here(pods=(pod("web-1"), replace(pod("web-2"), unschedulable=True)))
    waiting = controlled(Glimpse(NOW_S, 450.0, 400.0), looked=unscheduled)
    assert waiting is not None
    assert waiting.decision.applied.replicas == 2


@given(rate=NUMBERS, waiting=NUMBERS, cpu=st.sampled_from([50, 100, 200, 400]), replicas=st.integers(1, 10))
def test_whatever_a_look_of_rule_plus_sees_it_grows_within_bounds(rate: float, waiting: float, cpu: int, replicas: int) -> None:
    pods = tuple(pod(f"web-{n}", cpu=f"{cpu}m") for n in range(replicas))
    made = controlled(Glimpse(NOW_S, rate, waiting), looked=view(measured(), target(replicas), pods))
    if made is not None:
        before, after = made.decision.former, made.decision.applied
        assert before.replicas <= after.replicas <= 10
        assert before.cpu_milli <= after.cpu_milli <= 400
        assert before != after
