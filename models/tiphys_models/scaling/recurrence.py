"""Jumps that come again: the period, height and length of jumps in a service's own rates, and the rate they let expect next.

A jump counts from the window in which the rate leaves its level. Jumps are believed in whose last distances agree; where those are few,
the last two have to be equally high and long, too. Nobody is told a period or a phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.scaling.seen import ServiceHistory

LEAST = 3
"""Jumps, two equal distances."""
SURE = 3
"""Equal distances that need nothing else: chance alone rarely makes them."""
MOST = 6
MEMORY = 480
"""Windows that are looked at: two hours of 15 s."""
_FACTOR = 1.4
"""A rate this far above the mean of the three windows before is a jump; and more than chance makes of few requests."""
_TOLERANCE = 1.0
"""Windows a distance may be off."""
_HEIGHT, _LENGTH = 0.12, 0.8
"""Two jumps are alike if their heights differ by no more than this share, and their lengths by no more than this part of a window."""
_EARLY = 0.1
"""Part of a window by which a jump is expected earlier, and by which it is expected to last longer, than computed."""
_FILLED = 0.4
"""Part of a window that a jump has to fill before the saving (lean) forecast is ready for it."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A row a service."""

    rate: FloatArray
    """Request rate to be ready for in the coming window, if a jump may touch it; NaN where nothing recurs."""
    lean: FloatArray
    """Lean forecast of the rate: a jump that fills little of the window is left to the next one."""
    confidence: FloatArray
    """0 where nothing recurs, up to 1 with the number of distances that agree."""
    jumps: FloatArray
    """Jumps an hour in all that is remembered, whether they recur or not."""


def nothing_recurs(seen: ServiceHistory) -> Recurrence:
    """A recurrence that finds nothing, for agents that do not look for any."""
    never = np.full(len(seen), np.nan)
    return Recurrence(never, never, np.zeros(len(seen)), np.zeros(len(seen)))


def recurrence(seen: ServiceHistory) -> Recurrence:
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
    expected, lean, confidence = np.full(len(seen), np.nan), np.full(len(seen), np.nan), np.zeros(len(seen))
    for i in range(len(seen)):
        onsets = np.flatnonzero(first[i])[-MOST:].astype(np.int64)
        if len(onsets) >= LEAST:
            expected[i], lean[i], confidence[i] = _expected(known[i], onsets)
    hours = np.maximum(measured.sum(axis=1), 1) * seen.window_s / 3600
    return Recurrence(expected, lean, confidence, first.sum(axis=1) / np.maximum(hours, 0.1))


def _expected(rates: FloatArray, onsets: IntArray) -> tuple[float, float, float]:
    """(rate, lean rate, confidence) of the window after the last one."""
    levels, starts, lengths = (np.array(c) for c in zip(*(_jump(rates, int(o)) for o in onsets), strict=True))
    gaps = np.diff(starts)
    agreeing = 1
    while agreeing < len(gaps) and np.ptp(gaps[-agreeing - 1 :]) <= 2 * _TOLERANCE:
        agreeing += 1
    coming = float(len(rates))
    since = coming - starts[-1]
    two = slice(-2, None) if np.isfinite(lengths[-1]) else slice(-3, -1)
    if agreeing < LEAST - 1 or (agreeing < SURE and not _alike(levels[two], lengths[two])):
        return float("nan"), float("nan"), 0.0
    period = float(np.mean(gaps[-agreeing:]))
    base, level = float(np.median(rates[-round(2 * period) :])), float(levels[-agreeing - 1 :].max())
    ended = lengths[-agreeing - 1 :][np.isfinite(lengths[-agreeing - 1 :])]
    length = float(np.median(ended)) if len(ended) else 1.0
    # the coming window is [turn, turn + 1) after the nearest jump, which may only be about to begin
    turn = since - period * np.floor((since + 1 + _EARLY) / period)
    touched = turn + 1 > -_EARLY and turn < length + _EARLY
    filled = min(turn + 1, length) - max(turn, 0.0) > _FILLED
    return level if touched else base, level if filled else base, min(agreeing, 4) / 4


def _alike(levels: FloatArray, lengths: FloatArray) -> bool:
    """Whether past jumps have about the same height and length."""
    return bool(np.ptp(lengths) <= _LENGTH and np.ptp(levels) <= _HEIGHT * levels.max())


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
    last = int(below[0])
    filled = float(share[last]) + (float(share[last - 1]) if last > 1 else 1.0)
    return level, start, onset + last - 1 + filled - start
