"""What of a status's memory can be so at all, in today's time. Pure.

Anybody who may write statuses, and any version, may have put anything there. Whatever it says may delay a move for as long as our own
entries may, and no longer; what no operator of ours would write counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tiphys_models.api.learned_memory import LearnedMemory
from tiphys_models.api.scaling_reasons import MaskReason
from tiphys_models.api.scaling_status import Blocked, LimitsMemory, RememberedValue, ScalingMemory
from tiphys_models.scaling.headroom import AFTER, LEAST_BLIND, MOST
from tiphys_models.scaling.request_cpu import LEAST_MS, MOST_MS
from tiphys_operator.scaling.starting import LONGEST_S

BLOCKED_MAX_S = 1800.0
"""A move that failed waits for so long at most."""
MOVES = frozenset({"replicas-up", "replicas-down", "cpu-up", "cpu-down"})
_REASONS = frozenset(map(str, MaskReason))
_TRIES_MAX = 32
_VALUE_MAX = 2**31
_CPU_MAX_US = 10**9
"""A thousand seconds of CPU for one request."""
_VARIANCE_MAX = 0.04
"""A fifth of CPU a request: where windows were said to run off by more, no release would ever be noticed."""
_LAG_MAX_S = 3600.0
_LAST = ["last_requests", "last_used_milliseconds", "last_off"]


def believed(memory: ScalingMemory, now_s: float) -> ScalingMemory:
    """The same memory, or what is left of it."""
    cpu_us = memory.request_cpu_microseconds
    return memory.model_copy(
        update={
            "replicas": _limits(memory.replicas, now_s),
            "cpu": _limits(memory.cpu, now_s),
            "request_cpu_microseconds": cpu_us if cpu_us is not None and 0 < cpu_us <= _CPU_MAX_US else None,
            "blocked": list(_blocked(memory.blocked, now_s)),
            # from the future, it would keep us from acting for ever
            "overridden": [at for at in memory.overridden if math.isfinite(at) and at <= now_s],
            "comparison": memory.comparison if memory.comparison is not None and memory.comparison.sound else None,
            "learned": None if memory.learned is None else _learned(memory.learned),
        }
    )


def shifted(memory: ScalingMemory, by_s: float) -> ScalingMemory:
    """The same memory after the clock was set forward by so much: what has lasted for a minute has still lasted for a minute."""

    def limits(found: LimitsMemory) -> LimitsMemory:
        moved = {name: [_at(m, m.at + by_s) for m in getattr(found, name)] for name in ("lowest", "highest", "changes")}
        return found.model_copy(update=moved)

    back = memory.rolled_back
    return memory.model_copy(
        update={
            "replicas": limits(memory.replicas),
            "cpu": limits(memory.cpu),
            "blocked": [b.model_copy(update={"until": round(b.until + by_s, 3)}) for b in memory.blocked],
            "overridden": [round(at + by_s, 3) for at in memory.overridden],
            "rolled_back": None if back is None else back.model_copy(update={"at": round(back.at + by_s, 3)}),
        }
    )


def resumed(memory: ScalingMemory, now_s: float) -> ScalingMemory:
    """The same memory for a process that has just begun: the newest wish lasted until now, for a status is written when it changes.

    That holds a little longer than it need, never shorter.
    """

    def limits(found: LimitsMemory) -> LimitsMemory:
        lasting = {name: [*marks[:-1], _at(marks[-1], now_s)] for name in ("lowest", "highest") if (marks := getattr(found, name))}
        return found.model_copy(update=lasting)

    return memory.model_copy(update={"replicas": limits(memory.replicas), "cpu": limits(memory.cpu)})


def _learned(found: LearnedMemory) -> LearnedMemory:
    """Each part that cannot be so is as if nothing had been learned of it."""
    until, empty = found.until if 0 < found.until < math.inf else 0.0, LearnedMemory()
    wrong = []
    if not _ratio(found.used_milliseconds, found.requests):
        wrong += ["requests", "used_milliseconds", *_LAST]
    elif (
        found.last_off not in (-1, 0, 1)
        or found.last_requests > found.requests
        or not _ratio(found.last_used_milliseconds, found.last_requests)
    ):
        wrong += _LAST
    variance = None if found.variance is None or not found.variance >= 0 else min(found.variance, _VARIANCE_MAX)
    values = found.former_headroom if found.headroom is None else [found.headroom, *found.former_headroom]
    if not all(_within(value, LEAST_BLIND, MOST) for value in values):
        wrong += ["headroom", "former_headroom"]
    wrong += [
        name
        for name, most in (("exempt_windows", AFTER), ("excused", 1), ("lag_seconds", _LAG_MAX_S))
        if not _within(getattr(found, name), 0, most)
    ]
    if found.start_seconds is not None and not _within(found.start_seconds, 0, LONGEST_S):
        wrong.append("start_seconds")
    return found.model_copy(update={name: getattr(empty, name) for name in wrong} | {"until": until, "variance": variance})


def _ratio(used_ms: float, requests: float) -> bool:
    return 0 < requests < math.inf and _within(used_ms / requests, LEAST_MS, MOST_MS)


def _within(value: float, least: float, most: float) -> bool:
    """False for what is no number, too."""
    return least <= value <= most and math.isfinite(value)


def _limits(found: LimitsMemory, now_s: float) -> LimitsMemory:
    marks = {name: _marks(getattr(found, name), now_s) for name in ("lowest", "highest", "changes")}
    return found.model_copy(update=marks)


def _marks(marks: Iterable[RememberedValue], now_s: float) -> list[RememberedValue]:
    # what claims to come is taken for what has just been: it holds for one window, as anything may
    return [m if m.at <= now_s else _at(m, now_s) for m in marks if math.isfinite(m.at) and abs(m.value) <= _VALUE_MAX]


def _at(mark: RememberedValue, at_s: float) -> RememberedValue:
    return mark.model_copy(update={"at": round(at_s, 3)})


def _blocked(entries: Iterable[Blocked], now_s: float) -> Iterable[Blocked]:
    for entry in entries:
        if entry.move not in MOVES or entry.reason not in _REASONS or not math.isfinite(entry.until):
            continue
        until, tries = min(entry.until, round(now_s + BLOCKED_MAX_S, 3)), min(entry.tries, _TRIES_MAX)
        same = until == entry.until and tries == entry.tries
        yield entry if same else entry.model_copy(update={"until": until, "tries": tries})
