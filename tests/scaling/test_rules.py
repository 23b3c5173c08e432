from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign import brought
from tests.scaling.states import NOW_S, WINDOW_S, state
from tiphys_models.base.errors import InvalidInput
from tiphys_models.scaling.bounds import allowed_decision
from tiphys_models.scaling.hpa import HPA
from tiphys_models.scaling.protocol import decide
from tiphys_models.scaling.registry import REGISTRY, agent_names, make_agent
from tiphys_models.scaling.rules import Naive, Rule, RuleHorizontal, RuleSetting
from tiphys_models.scaling.seen import seen_of
from tiphys_models.scaling.state import Bounds, Mask, ScalingDecision

PLAIN = RuleSetting(headroom=1.0, last=1, rise=0.0, keep=1)


def test_the_rule_buys_what_the_last_rate_takes() -> None:
    assert decide(Rule(PLAIN), state(240.0, 240.0)).cpu_m == 400


def test_the_rule_sees_rises_backlog_and_headroom() -> None:
    steady, rising = state(120.0, 120.0), state(60.0, 120.0)
    assert decide(Rule(RuleSetting(headroom=1.0, rise=0.5, keep=1)), rising).cpu_m == 250
    assert decide(Rule(RuleSetting(headroom=1.1, rise=0.0, keep=1)), steady).cpu_m == 220
    waiting = state(120.0, 120.0, newest={"in_flight": 60.0 + 15 * 60.0})
    assert decide(Rule(PLAIN), waiting).cpu_m == 300


def test_replicas_follow_the_longer_maximum_and_size_the_present_need() -> None:
    rule = Rule(RuleSetting(headroom=1.0, rise=0.0, keep=3, pod_m=500))
    after_a_peak = decide(rule, state(900.0, 120.0, 120.0, replicas=3))
    assert (after_a_peak.replicas, after_a_peak.cpu_m) == (3, 66)
    long_after = decide(rule, state(900.0, 120.0, 120.0, 120.0, replicas=3))
    assert (long_after.replicas, long_after.cpu_m) == (1, 200)


def test_the_horizontal_rule_keeps_its_pods_size() -> None:
    wanted = decide(RuleHorizontal(RuleSetting(headroom=1.0, rise=0.0, keep=1, pod_m=250)), state(300.0, 300.0))
    assert (wanted.replicas, wanted.cpu_m) == (2, 250)


@pytest.mark.parametrize(
    ("used_m", "replicas", "expected"),
    [
        ((800.0,), 2, 2),  # exactly at target
        ((860.0,), 2, 2),  # inside the tolerance
        ((1000.0,), 2, 3),
        ((20_000.0,), 2, 6),  # at most four more at once
        ((20_000.0,), 9, 18),  # or double
        ((1200.0, 300.0), 3, 3),  # down only to the highest recommendation of 300 s
        ((300.0,) * 20, 3, 1),
    ],
)
def test_hpa_s_formula(used_m: tuple[float, ...], replicas: int, expected: int) -> None:
    seen = seen_of([state(*(100.0 for _ in used_m), replicas=replicas)])
    seen.used_cpu_m[0, -len(used_m) :] = used_m
    assert HPA().answer(seen).replicas.tolist() == [expected]


def test_no_rule_plans_with_pods_larger_than_the_workload_may_have() -> None:
    small = Bounds(max_cpu_m=200)
    sized = decide(Rule(PLAIN), state(360.0, 360.0, bounds=small))
    assert (sized.replicas, sized.cpu_m) == (3, 200)
    assert decide(RuleHorizontal(PLAIN), state(360.0, 360.0, bounds=small)).replicas == 3
    pinned = Bounds(min_cpu_m=250, max_cpu_m=250)
    found = decide(HPA(), state(300.0, replicas=1, cpu_m=250, bounds=pinned))
    assert (found.replicas, found.cpu_m) == (3, 250)


def test_naive_always_moves() -> None:
    assert decide(Naive(), state(400.0, replicas=2)).replicas == 3
    assert decide(Naive(), state(200.0, replicas=2)).replicas == 1


def test_missing_measurements_hold() -> None:
    unknown = state(100.0, replicas=3, newest={"used_cpu_m": None})
    assert decide(HPA(), unknown).replicas == 3
    assert decide(Naive(), unknown).replicas == 3
    for agent in agent_names():
        old = replace(state(100.0, replicas=3), now_s=NOW_S + 3 * WINDOW_S)
        found = decide(make_agent(agent), old)
        assert (found.replicas, found.cpu_m, found.reason) == (3, 300, "NoData")


def test_bounds_and_mask_hold_what_they_forbid() -> None:
    wish = ScalingDecision(9, 613, "Rule")
    bounded = allowed_decision(state(100.0, bounds=Bounds(max_replicas=4)), wish)
    assert (bounded.replicas, bounded.cpu_m) == (4, 620)
    masked = allowed_decision(state(100.0, replicas=2, mask=Mask(replicas_up=False, cpu_up=False)), wish)
    assert (masked.replicas, masked.cpu_m) == (2, 300)
    less = allowed_decision(state(100.0, replicas=2, mask=Mask(replicas_down=False, cpu_down=False)), ScalingDecision(1, 50, "Rule"))
    assert (less.replicas, less.cpu_m) == (2, 300)


rates = st.lists(st.floats(0, 2000), min_size=1, max_size=30)


@given(
    rates=rates, replicas=st.integers(1, 16), cpu_m=st.integers(5, 64), agent=st.sampled_from(("naive", "hpa", "rule-horizontal", "rule"))
)
def test_answers_are_whole_positive_and_inside_bounds(rates: list[float], replicas: int, cpu_m: int, agent: str) -> None:
    seen = state(*rates, replicas=replicas, cpu_m=cpu_m * 10)
    found = allowed_decision(seen, decide(make_agent(agent), seen))
    assert 1 <= found.replicas <= 16
    assert found.cpu_m in range(50, 641, 10)


@given(many=st.lists(rates, min_size=2, max_size=5), agent=st.sampled_from(("naive", "hpa", "rule-horizontal", "rule")))
def test_many_services_get_what_each_would_get_alone(many: list[list[float]], agent: str) -> None:
    states = [state(*r, replicas=2) for r in many]
    together = make_agent(agent).answer(seen_of(states))
    for i, alone in enumerate(states):
        one = make_agent(agent).answer(seen_of([alone]))
        assert (together.replicas[i], together.cpu_m[i]) == (one.replicas[0], one.cpu_m[0])


def test_names_are_checked_and_others_come_by_entry_points() -> None:
    with pytest.raises(InvalidInput, match="no scaling agent is called 'magic'"):
        make_agent("magic")

    with brought(REGISTRY, theirs=f"{__name__}:theirs"):
        assert "theirs" in agent_names()
        assert decide(make_agent("theirs"), state(400.0)).replicas == 2
    assert "theirs" not in agent_names()


def theirs(attainment: float) -> Naive:
    return Naive()


def test_a_window_without_a_rate_repeats_the_one_before() -> None:
    nan = float("nan")
    assert decide(Rule(PLAIN), state(nan, 240.0, nan, nan)).cpu_m == 400
    assert seen_of([state(nan, 100.0, nan)]).rates[0, -3:].tolist()[1:] == [100.0, 100.0]


def test_every_agent_is_explained() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "scaling.md").read_text()
    for name in agent_names():
        assert f"| `{name}` |" in text, name
