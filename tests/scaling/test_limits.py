"""The clamps against a transliteration of HPA's code, which keeps everything it ever recommended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, trunc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tiphys_models.scaling.limits import REMEMBERED_MAX, Direction, LimitReason, Limits, Rate, WishHistory, clamp

STILL = Direction(0.0, (Rate("Percent", 1000, 15.0),))


def limits(least: int = 1, most: int = 100, up: Direction = STILL, down: Direction = STILL) -> Limits:
    return Limits(least, most, up, down)


@dataclass
class Hpa:
    """`stabilizeRecommendationWithBehaviors` and `convertDesiredReplicasWithBehaviorRate`, line by line, with unbounded memory."""

    rules: Limits
    recommendations: list[tuple[float, int]] = field(default_factory=list)
    ups: list[tuple[float, int]] = field(default_factory=list)
    downs: list[tuple[float, int]] = field(default_factory=list)

    def step(self, current: int, desired: int, now: float) -> int:
        result = self.decide(current, desired, now)
        # every change is an event, also back into bounds
        if result > current:
            self.ups.append((now, result - current))
        elif result < current:
            self.downs.append((now, current - result))
        return result

    def decide(self, current: int, desired: int, now: float) -> int:
        rules = self.rules
        if not self.recommendations:
            self.recommendations.append((now, current))
        if current > rules.most:
            return rules.most
        if current < rules.least:
            return rules.least
        ratio = Fraction(desired, current)
        if Fraction(1) - Fraction(rules.down.tolerance) <= ratio <= Fraction(1) + Fraction(rules.up.tolerance):
            desired = current
        up = down = desired
        for at, value in self.recommendations:
            if at > now - rules.up.window_s:
                up = min(value, up)
            if at > now - rules.down.window_s:
                down = max(value, down)
        stable = current
        if stable < up:
            stable = up
        if stable > down:
            stable = down
        self.recommendations.append((now, desired))
        return self.rate(current, stable, now)

    def rate(self, current: int, desired: int, now: float) -> int:
        rules = self.rules
        if desired > current:
            limit = current
            if rules.up.select != "Disabled":
                values = []
                for r in rules.up.rates:
                    begin = current - self.within(self.ups, r, now) + self.within(self.downs, r, now)
                    values.append(begin + r.value if r.kind == "Units" else ceil(begin * (1 + Fraction(r.value, 100))))
                limit = max(values) if rules.up.select == "Max" else min(values)
            return min(desired, rules.most, max(limit, current))
        if desired < current:
            limit = current
            if rules.down.select != "Disabled":
                values = []
                for r in rules.down.rates:
                    begin = current - self.within(self.ups, r, now) + self.within(self.downs, r, now)
                    values.append(begin - r.value if r.kind == "Units" else trunc(begin * (1 - Fraction(r.value, 100))))
                limit = min(values) if rules.down.select == "Max" else max(values)
            return max(desired, rules.least, min(limit, current))
        return desired

    @staticmethod
    def within(events: list[tuple[float, int]], rate: Rate, now: float) -> int:
        return sum(value for at, value in events if at > now - rate.period_s)


rates = st.builds(Rate, st.sampled_from(["Units", "Percent"]), st.integers(1, 100), st.sampled_from([15.0, 60.0, 300.0]))
directions = st.builds(
    Direction,
    st.sampled_from([0.0, 30.0, 300.0, 3600.0]),
    st.lists(rates, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.sampled_from([0.0, 0.125, 0.5]),
)
rules = st.builds(
    lambda least, span, up, down: Limits(least, least + span, up, down), st.integers(1, 5), st.integers(0, 60), directions, directions
)


ONE_A_PERIOD = Direction(0.0, (Rate("Units", 1, 15.0),), "Max", 0.0)


@settings(deadline=None)
@example(rules=Limits(1, 2, ONE_A_PERIOD, ONE_A_PERIOD), start=3, wishes=[0, 0], step_s=5.0)
@given(rules=rules, start=st.integers(1, 40), wishes=st.lists(st.integers(0, 80), max_size=40), step_s=st.sampled_from([5.0, 15.0, 100.0]))
def test_limits_give_the_same_replicas_as_the_horizontal_pod_autoscaler(
    rules: Limits, start: int, wishes: list[int], step_s: float
) -> None:
    hpa, history, current = Hpa(rules), WishHistory(), start
    for number, wanted in enumerate(wishes):
        now_s = number * step_s
        expected = hpa.step(current, wanted, now_s)
        found = clamp(rules, history, current, wanted, now_s)
        assert found.value == expected
        history = found.history.changed(found.value - current, now_s)
        current = found.value


@settings(deadline=None)
@given(rules=rules, current=st.integers(1, 65), low=st.integers(0, 80), high=st.integers(0, 80))
def test_wanting_more_never_gives_less(rules: Limits, current: int, low: int, high: int) -> None:
    low, high = sorted((low, high))
    assert clamp(rules, WishHistory(), current, low, 0.0).value <= clamp(rules, WishHistory(), current, high, 0.0).value


@settings(deadline=None, max_examples=20)
@given(wishes=st.lists(st.integers(1, 10_000), min_size=200, max_size=300))
def test_the_memory_is_bounded_and_forgets_to_the_safe_side(wishes: list[int]) -> None:
    rules = limits(most=10_000, down=replace(STILL, window_s=3600.0))
    hpa, history, current = Hpa(rules), WishHistory(), 1
    for number, wanted in enumerate(wishes):
        found = clamp(rules, history, current, wanted, number * 15.0)
        assert found.value >= hpa.step(current, wanted, number * 15.0)
        history = found.history.changed(found.value - current, number * 15.0)
        current = found.value
    assert max(map(len, (history.lowest, history.highest, history.changes))) <= REMEMBERED_MAX


def test_nothing_shrinks_within_the_first_window() -> None:
    rules = limits(down=replace(STILL, window_s=300.0))
    first = clamp(rules, WishHistory(), 10, 2, 0.0)
    assert (first.value, first.reason) == (10, LimitReason.SCALE_DOWN_STABILIZED)
    assert clamp(rules, first.history, 10, 2, 299.0).value == 10
    assert clamp(rules, first.history, 10, 2, 300.0).value == 2


@pytest.mark.parametrize(
    ("rules", "current", "wanted", "value", "reason"),
    [
        (limits(), 10, 12, 12, LimitReason.DESIRED_WITHIN_RANGE),
        (limits(), 10, 10, 10, LimitReason.DESIRED_WITHIN_RANGE),
        (limits(up=replace(STILL, tolerance=0.2)), 10, 12, 10, LimitReason.WITHIN_TOLERANCE),
        (limits(up=replace(STILL, window_s=30.0)), 10, 12, 10, LimitReason.SCALE_UP_STABILIZED),
        (limits(up=Direction(0.0, (Rate("Units", 2, 15.0),))), 10, 20, 12, LimitReason.SCALE_UP_LIMIT),
        (limits(down=Direction(0.0, (Rate("Units", 2, 15.0),))), 10, 1, 8, LimitReason.SCALE_DOWN_LIMIT),
        (limits(down=replace(STILL, select="Disabled")), 10, 1, 10, LimitReason.SCALE_DOWN_LIMIT),
        (limits(most=15), 10, 20, 15, LimitReason.TOO_MANY),
        (limits(least=5), 10, 1, 5, LimitReason.TOO_FEW),
        (limits(most=5), 10, 20, 5, LimitReason.TOO_MANY),
        (limits(least=5), 0, 0, 5, LimitReason.TOO_FEW),
    ],
)
def test_the_reason_names_the_limit_that_set_the_value(rules: Limits, current: int, wanted: int, value: int, reason: LimitReason) -> None:
    settled = clamp(rules, WishHistory(), current, current, -10_000.0).history
    found = clamp(rules, settled, current, wanted, 0.0)
    # the up window holds what was wanted before; here that is long ago, except where the case is about it
    if reason is LimitReason.SCALE_UP_STABILIZED:
        found = clamp(rules, clamp(rules, settled, current, current, -1.0).history, current, wanted, 0.0)
    assert (found.value, found.reason) == (value, reason)


def test_a_step_counts_in_its_period_after_a_restart() -> None:
    rules = limits(up=Direction(0.0, (Rate("Units", 4, 60.0),)))
    first = clamp(rules, WishHistory(), 10, 50, 0.0)
    kept = first.history.changed(4, 0.0)
    assert clamp(rules, kept, 14, 50, 30.0).value == 14
    assert clamp(rules, kept, 14, 50, 60.0).value == 18
