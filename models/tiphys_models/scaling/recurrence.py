"""Jumps that come again: the period, height and length of jumps in a service's own rates, and the rate they let expect next.

A jump counts from the window in which the rate leaves its level. Only jumps whose last distances agree are believed in; nobody is told
a period or a phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.features.arrays import FloatArray, IntArray
from tiphys_models.scaling.seen import Seen

LEAST = 3
"""Jumps, two equal distances: chance alone rarely makes them."""
MOST = 6
MEMORY = 480
"""Windows that are looked at: two hours of 15 s."""
_FACTOR = 1.4
"""A rate this far above the mean of the three windows before is a jump; and more than chance makes of few requests."""
_TOLERANCE = 1.0
"""Windows a distance may be off."""
_EARLY = 0.35
"""Of a window: how much earlier and longer a jump is expected than it should be."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A row a service."""

    rate: FloatArray
    """Expected in the coming window; NaN where nothing recurs."""
    confidence: FloatArray
    """0 where nothing recurs, up to 1 with the number of distances that agree."""
    jumps: FloatArray
    """Jumps an hour in all that is remembered, whether they recur or not."""


def nothing_recurs(seen: Seen) -> Recurrence:
    """For agents that do not look."""
    return Recurrence(np.full(len(seen), np.nan), np.zeros(len(seen)), np.zeros(len(seen)))


def recurrence(seen: Seen) -> Recurrence:
    """What the rates say."""
    rates = seen.rates[:, -MEMORY:]
    first_known = np.argmin(np.isnan(rates).all(axis=0))
    rates = rates[:, first_known:]
    if rates.shape[1] < 4:
        return nothing_recurs(seen)
    known = np.nan_to_num(rates, nan=0.0)
    before = (known[:, 2:-1] + known[:, 1:-2] + known[:, :-3]) / 3
    measured = ~np.isnan(rates[:, :-3])
    enough = 4 * np.sqrt(np.maximum(before, 1.0) / seen.window_s)
    high = np.zeros(rates.shape, np.bool_)
    high[:, 3:] = measured & (known[:, 3:] > _FACTOR * before + enough)
    first = high.copy()
    for back in (1, 2, 3):
        first[:, back:] &= ~high[:, :-back]
    expected, confidence = np.full(len(seen), np.nan), np.zeros(len(seen))
    for i in range(len(seen)):
        onsets = np.flatnonzero(first[i])[-MOST:].astype(np.int64)
        if len(onsets) >= LEAST:
            expected[i], confidence[i] = _expected(known[i], onsets)
    hours = np.maximum(measured.sum(axis=1), 1) * seen.window_s / 3600
    return Recurrence(expected, confidence, first.sum(axis=1) / np.maximum(hours, 0.1))


def _expected(rates: FloatArray, onsets: IntArray) -> tuple[float, float]:
    """(rate, confidence) of the window after the last one."""
    levels, starts, lengths = zip(*(_jump(rates, int(o)) for o in onsets), strict=True)
    gaps = np.diff(starts)
    agreeing = 1
    while agreeing < len(gaps) and np.ptp(gaps[-agreeing - 1 :]) <= 2 * _TOLERANCE:
        agreeing += 1
    if agreeing < LEAST - 1:
        return float("nan"), 0.0
    period = float(np.mean(gaps[-agreeing:]))
    coming, base = float(len(rates)), float(np.median(rates[-round(2 * period) :]))
    ended = [length for length in lengths if np.isfinite(length)]
    length = max(ended) if ended else 1.0
    since = coming - starts[-1]
    turn = since - period * np.floor((since + 1 + _EARLY) / period)
    # the coming window is [turn, turn + 1) after the nearest jump, which may only be about to begin
    inside = turn + 1 > -_EARLY and turn < length + _EARLY
    return (max(levels[-agreeing - 1 :]) if inside else base), min(agreeing, 4) / 4


def _jump(rates: FloatArray, onset: int) -> tuple[float, float, float]:
    """(height, beginning, length), both in windows and fractions of one; the length is NaN while it lasts."""
    base = float(rates[max(onset - 3, 0) : onset].mean())
    after = rates[onset : onset + 24]
    level = float(after[:4].max())
    half = (base + level) / 2
    share = np.clip((after - base) / (level - base), 0.0, 1.0)
    below = np.flatnonzero(after[1:] < half) + 1
    start = onset + 1 - float(share[0])
    if not len(below):
        return level, start, float("nan")
    end = onset + int(below[0]) + float(share[below[0]])
    return level, start, end - start
