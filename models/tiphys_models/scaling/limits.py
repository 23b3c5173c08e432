"""Limits between what an agent wants and what is done: the clamps of HPA v2 in their exact order, for replicas and for CPU steps alike.

1. Within tolerance of what is there: hold. 2. Stabilise: grow only to the least that was wanted within the up window, shrink only to the
most within the down window. 3. Rate: so much in each period at most. 4. Bounds. As `normalizeDesiredReplicasWithBehaviors` in Kubernetes'
`pkg/controller/podautoscaler`, with one difference: the history is data that the caller keeps, so that a restart forgets nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

REMEMBERED_MAX = 60
"""Entries of each list; beyond that neighbours become one, to the safe side."""


class LimitReason(StrEnum):
    """Which clamp had the last word; HPA's words where it has them."""

    DESIRED_WITHIN_RANGE = "DesiredWithinRange"
    WITHIN_TOLERANCE = "WithinTolerance"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    SCALE_DOWN_STABILIZED = "ScaleDownStabilized"
    SCALE_UP_LIMIT = "ScaleUpLimit"
    SCALE_DOWN_LIMIT = "ScaleDownLimit"
    TOO_MANY = "TooMany"
    TOO_FEW = "TooFew"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many units, or so many percent, within a period."""

    kind: Literal["Units", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class Direction:
    """Rules for one direction."""

    window_s: float
    rates: tuple[Rate, ...]
    select: Literal["Max", "Min", "Disabled"] = "Max"
    """Choice among several rates: the one that allows the most change, the least, or no change at all."""
    tolerance: float = 0.0
    """Share of the present value that is not worth a change."""


# What a ScalingPolicy has that says nothing about a dimension and a direction; the descriptions in api/scaling_policy.py repeat it.
UP_PODS = Direction(0.0, (Rate("Units", 4, 15.0), Rate("Percent", 100, 15.0)))
DOWN_PODS = Direction(300.0, (Rate("Percent", 100, 15.0),))
UP_CPU = Direction(0.0, (Rate("Percent", 900, 15.0),), tolerance=0.07)
DOWN_CPU = Direction(30.0, (Rate("Percent", 50, 15.0),), tolerance=0.07)


@dataclass(frozen=True, slots=True)
class Limits:
    """Rules for one dimension, in units: pods, or steps of CPU."""

    least: int
    most: int
    up: Direction
    down: Direction


@dataclass(frozen=True, slots=True)
class Mark:
    """A value and when it was taken."""

    at_s: float
    value: int


@dataclass(frozen=True, slots=True)
class WishHistory:
    """What the clamps must not forget. Of former wishes only those are kept that can still be the least or the most of a window."""

    lowest: tuple[Mark, ...] = ()
    """Strictly rising, newest last."""
    highest: tuple[Mark, ...] = ()
    """Strictly falling, newest last."""
    changes: tuple[Mark, ...] = ()
    """Steps that were made: signed differences."""

    def changed(self, difference: int, at_s: float) -> WishHistory:
        """After a step was made, or is about to be."""
        return replace(self, changes=_bounded((*self.changes, Mark(at_s, difference)), operator.add)) if difference else self


@dataclass(frozen=True, slots=True)
class Clamped:
    """What may be done."""

    value: int
    reason: LimitReason
    history: WishHistory
    """History with the present wish added; a step is entered by `changed` when it is made."""


def clamp(limits: Limits, history: WishHistory, current: int, wanted: int, now_s: float) -> Clamped:
    """The value to go to now."""
    history = _started(history, current, now_s)
    if current > limits.most:
        return Clamped(limits.most, LimitReason.TOO_MANY, history)
    if current < limits.least:
        return Clamped(limits.least, LimitReason.TOO_FEW, history)
    tolerated = -limits.down.tolerance <= (wanted - current) / current <= limits.up.tolerance if current else wanted == current
    desired = current if tolerated else wanted
    floor = min([desired, *(m.value for m in history.lowest if m.at_s > now_s - limits.up.window_s)])
    ceiling = max([desired, *(m.value for m in history.highest if m.at_s > now_s - limits.down.window_s)])
    stable = min(max(current, floor), ceiling)
    history = _remembered(history, limits, desired, now_s)
    value, reason = _rated(limits, history.changes, current, stable, now_s)
    if reason is LimitReason.DESIRED_WITHIN_RANGE:
        if stable != desired:
            reason = LimitReason.SCALE_UP_STABILIZED if desired >= current else LimitReason.SCALE_DOWN_STABILIZED
        elif tolerated and wanted != current:
            reason = LimitReason.WITHIN_TOLERANCE
    return Clamped(value, reason, history)


def rated(limits: Limits, history: WishHistory, current: int, value: int, now_s: float) -> int:
    """The value as far as rates and bounds allow it now, for a step that was decided before."""
    return _rated(limits, history.changes, current, value, now_s)[0]


def _rated(limits: Limits, changes: Sequence[Mark], current: int, stable: int, now_s: float) -> tuple[int, LimitReason]:
    if stable > current:
        limit = max(_most_up(limits.up, changes, current, now_s), current)
        allowed, why = (limit, LimitReason.SCALE_UP_LIMIT) if limit < limits.most else (limits.most, LimitReason.TOO_MANY)
        if stable > allowed:
            return allowed, why
    elif stable < current:
        limit = min(_least_down(limits.down, changes, current, now_s), current)
        allowed, why = (limit, LimitReason.SCALE_DOWN_LIMIT) if limit > limits.least else (limits.least, LimitReason.TOO_FEW)
        if stable < allowed:
            return allowed, why
    return stable, LimitReason.DESIRED_WITHIN_RANGE


def _most_up(rules: Direction, changes: Sequence[Mark], current: int, now_s: float) -> int:
    def allowed(rate: Rate) -> int:
        begin = _at_begin(changes, current, now_s - rate.period_s)
        # percents round up: a share of little must still allow one more
        return begin + rate.value if rate.kind == "Units" else -(-begin * (100 + rate.value) // 100)

    if rules.select == "Disabled":
        return current
    return (max if rules.select == "Max" else min)(map(allowed, rules.rates))


def _least_down(rules: Direction, changes: Sequence[Mark], current: int, now_s: float) -> int:
    def allowed(rate: Rate) -> int:
        begin = _at_begin(changes, current, now_s - rate.period_s)
        return begin - rate.value if rate.kind == "Units" else begin * (100 - rate.value) // 100

    if rules.select == "Disabled":
        return current
    return (min if rules.select == "Max" else max)(map(allowed, rules.rates))


def _at_begin(changes: Sequence[Mark], current: int, begin_s: float) -> int:
    """The value at the beginning of a period."""
    return current - sum(mark.value for mark in changes if mark.at_s > begin_s)


def _started(history: WishHistory, current: int, now_s: float) -> WishHistory:
    """A history for its first use: it says that the present value was wanted so far, so nothing shrinks within the first window."""
    if history.highest:
        return history
    first = (Mark(now_s, current),)
    return replace(history, lowest=first, highest=first)


def _remembered(history: WishHistory, limits: Limits, desired: int, now_s: float) -> WishHistory:
    new = Mark(now_s, desired)
    longest_s = max([0.0, *(rate.period_s for rules in (limits.up, limits.down) for rate in rules.rates)])
    return WishHistory(
        lowest=_bounded((*_recent(history.lowest, now_s - limits.up.window_s, below=desired), new), min),
        highest=_bounded((*_recent(history.highest, now_s - limits.down.window_s, above=desired), new), max),
        changes=tuple(mark for mark in history.changes if mark.at_s > now_s - longest_s),
    )


def _recent(marks: tuple[Mark, ...], after_s: float, below: int | None = None, above: int | None = None) -> tuple[Mark, ...]:
    return tuple(m for m in marks if m.at_s > after_s and (below is None or m.value < below) and (above is None or m.value > above))


def _bounded(marks: tuple[Mark, ...], joined: Callable[[int, int], int]) -> tuple[Mark, ...]:
    """The two that are closest in time become one with the later time, until there are few enough: it holds longer, never shorter."""
    while len(marks) > REMEMBERED_MAX:
        at = min(range(len(marks) - 1), key=lambda i: marks[i + 1].at_s - marks[i].at_s)
        one = Mark(marks[at + 1].at_s, joined(marks[at].value, marks[at + 1].value))
        marks = (*marks[:at], one, *marks[at + 2 :])
    return marks
