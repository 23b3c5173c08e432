"""Headroom under control: up where a window is missed, slowly down where it is kept, until the wanted share of windows is kept.

An integral controller on one number. It needs no model of the noise: whatever share of misses is tolerated is what it settles at. Two
kinds of misses are not its business: jumps that no headroom prevents, and windows in which the CPU of a request has changed. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

OBJECTIVE = 0.985
"""Share of windows to keep where nobody says another one."""
START = 1.08
LEAST, MOST = 1.0, 3.0
STEP = 0.07
"""Of the logarithm, a missed window; a kept one takes back as much times the tolerated share."""
LEAST_BLIND, STEP_BLIND = 0.6, 0.1
"""The same where the CPU of requests was never measured: then headroom makes up for what is believed of it, too."""
JUMP = 1.8
"""A rate this many times the predicted one is a jump."""
AFTER = 2
"""Windows after a jump, of the rate or of the CPU of a request, in which no miss counts."""
REMEMBERED = 240
"""Windows over which the share of excused misses is taken: an hour of 15 s."""
BACK = 4
"""Windows back, to the headroom that held before misses were those of a release."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What is known after a window."""

    value: float = START
    """The factor that a predicted rate is multiplied by."""
    former: tuple[float, ...] = ()
    """Values after the last windows, oldest first; at most BACK."""
    exempt: int = 0
    """Further windows in which no miss counts."""
    excused: float = 0.0
    """Share of the remembered windows that were missed and did not count because of a jump of the rate."""
    windows: int = 0
    """Windows that this share is of, at most REMEMBERED: of those that were seen, until there are as many."""


@dataclass(frozen=True, slots=True)
class WindowOutcome:
    """What a window came to."""

    missed: bool | None
    """Whether more of it was late than the objective tolerates; None: not measured."""
    rate: float
    predicted: float
    """Requests a second that came, and that its sizes were made for, without headroom."""
    cpu_jumped: bool = False
    """Whether the CPU of a request was found to have changed (`RequestCPU.jumped`)."""
    blind: bool = False
    """Whether nobody has ever measured the CPU of a request."""


def controlled(known: Headroom, window: WindowOutcome, objective: float = OBJECTIVE) -> Headroom:
    """After one more window."""
    former = (*known.former, known.value)[-BACK:]
    if window.cpu_jumped:
        return replace(known, value=former[0], former=former, exempt=AFTER)
    jumped = window.rate > JUMP * window.predicted
    left = AFTER if jumped else max(known.exempt - 1, 0)
    if window.missed is None:
        return replace(known, former=former, exempt=left)
    counts = window.missed and not jumped and not known.exempt
    by, least = (STEP_BLIND, LEAST_BLIND) if window.blind else (STEP, LEAST)
    moved = known.value * math.exp(by * (counts - (1 - objective)))
    windows = min(known.windows + 1, REMEMBERED)
    excused = known.excused + ((window.missed and not counts) - known.excused) / windows
    return Headroom(min(max(moved, least), MOST), former, left, excused, windows)


def predicted(rates: Sequence[float], rise: float) -> float:
    """Requests a second that the last rates let expect: the newest, and a share of the last rise once more."""
    if not rates:
        return math.nan
    last = rise * max(rates[-1] - rates[-2], 0.0) if len(rates) > 1 else 0.0
    return rates[-1] + (last if math.isfinite(last) else 0.0)
