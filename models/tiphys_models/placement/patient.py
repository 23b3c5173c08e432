"""Policies that know the books: warm-first on them, two rules that may wait for an instance, and the estimator of completion times.

All of them score any number of candidates by the kernels that the simulator compiles. The three that may wait say "not yet" where a call
that would start cold is expected to be done sooner on an instance that is still busy; a function of which too little is known is placed
by the books alone, because profiles taken at their word are what hurts when they are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, IntArray
from tiphys_models.placement import kernels
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.estimator import expected_rests, placement_costs
from tiphys_models.placement.learned_profiles import COLD_WORK, CORES_USED, START_S, WARM_WORK, saved_by_warmth
from tiphys_models.placement.waiting import SURE, NotYet, awaited_s

EPSILON = 1e-3
WAITS_WEIGHTS = (0.88, 0.22)
"""What a call waits for: so much of what warmth saves, and so many seconds."""
RULE_6_WEIGHTS = (-0.20, -0.35, -0.80, -0.97, 0.79, 0.45)
"""Weights of work still to do, crowding, what an eviction loses and open calls of the function; then what a call waits for."""


class Outlook(NamedTuple):
    """What a placement would mean for each candidate."""

    warm: FloatArray
    costs: FloatArray
    """[candidates, 4] of `estimator.placement_costs`."""
    work_left: FloatArray
    """Core-seconds still to do over cores."""
    same: FloatArray
    """Open calls of the function."""


class _Open(NamedTuple):
    """The open calls that make a difference."""

    on: IntArray
    """Place of each call's node among the candidates; -1 elsewhere."""
    rests: FloatArray
    used: FloatArray
    work: FloatArray
    same: BoolArray


def _open_calls(view: CandidateView, b: Believed, *, everywhere: bool) -> _Open:
    """Open calls of the function, wherever, and those beside which this one would be crowded; `everywhere`: on all candidates.

    Where the cores suffice for all calls and this one, none takes anything from the others: nobody needs to know how long they last.
    """
    used = b.profiles[b.open_function, CORES_USED]
    there = b.open_row >= 0
    nodes = len(b.node_cores)
    threads = np.bincount(b.open_row[there], used[there], nodes)
    place = np.full(nodes + 1, -1, np.int64)  # an unknown node is -1: the last entry, which is nobody's
    matters = slice(None) if everywhere else threads[view.rows] + b.profile[CORES_USED] > b.node_cores[view.rows]
    place[view.rows[matters]] = np.arange(len(view.rows))[matters]
    same = b.open_function == b.own_function
    seen = np.flatnonzero((place[b.open_row] >= 0) | same)
    row, function, cold = b.open_row[seen], b.open_function[seen], b.open_cold[seen]
    profile = b.profiles[function]
    speed = np.where(row >= 0, b.speed[row], 1.0)
    work = np.where(cold, profile[:, COLD_WORK], profile[:, WARM_WORK])
    crowded = np.maximum(threads / b.node_cores, 1.0)
    rests = expected_rests(
        np.where(row >= 0, crowded[row], 1.0),
        b.now_s - b.open_at_s[seen],
        np.where(cold, profile[:, START_S] / speed, 0.0),
        work / profile[:, CORES_USED] / speed,
        b.least_share,
    )
    return _Open(place[row], rests, profile[:, CORES_USED], work, same[seen])


def outlook(view: CandidateView, b: Believed, *, everywhere: bool = False) -> Outlook:
    """What a placement would mean for each candidate; what is left to do there only if asked for `everywhere`."""
    count = len(view.rows)
    calls = _open_calls(view, b, everywhere=everywhere)
    here = calls.on >= 0
    on = calls.on[here]
    cores = b.node_cores[view.rows]
    wanted = float(view.request.memory_bytes)
    spare = view.available_memory_bytes - b.idle_bytes
    value = b.idle_value_s((spare < wanted) & (b.idle_bytes > 0) & ~b.warm)
    costs = placement_costs(
        cores, spare, b.idle_bytes, value, b.warm, b.speed[view.rows], on, calls.rests[here, 0], calls.used[here], b.profile, wanted
    )
    left = np.bincount(on, (calls.work * calls.rests[:, 1])[here], count) / cores
    same: FloatArray = np.bincount(on, calls.same[here] * 1.0, count) * 1.0
    return Outlook(b.warm * 1.0, costs, left, same)


def by_the_books(view: CandidateView, b: Believed) -> FloatArray:
    """Scores of warm-first, warm being what the books list."""
    return kernels.warm_first(b.warm * 1.0, view.image_present, view.inflight, view.cores)


def not_yet(view: CandidateView, b: Believed, best: int, before: int, bar_s: float, worth_s: float) -> NotYet | None:
    """Whether a call waits: its node would start it cold, and an instance of its own is expected sooner than the bar. `worth_s` is what
    that instance would save it."""
    if b.warm[best] or not bar_s > 0 or b.own_function < 0:
        return None
    calls = _open_calls(view, b, everywhere=False)
    until_s = awaited_s(calls.rests[calls.same, 0], before)
    return NotYet(until_s, worth_s - until_s) if until_s < bar_s else None


@dataclass(frozen=True, slots=True)
class WarmFirstBooks:
    """Warm-first, warm being what follows from calls seen to end: readings may be old, or nobody reads."""

    name: str = "warm-first-books"
    epsilon: float = EPSILON
    row_wise: bool = False
    digest: str = ""

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """A step of 1,000 for each degree of warmth, less the pods in flight per core, this one included."""
        return by_the_books(view, view.believed())


@dataclass(frozen=True, slots=True)
class WarmFirstWaits:
    """The same, and a call that would start cold waits for an instance that is expected soon enough."""

    name: str = "warm-first-waits"
    epsilon: float = EPSILON
    row_wise: bool = False
    digest: str = ""
    weights: tuple[float, ...] = WAITS_WEIGHTS

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """The same scores as those of warm-first-books."""
        return by_the_books(view, view.believed())

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """See `PatientPolicy`."""
        b = view.believed()
        saved_s = saved_by_warmth(b.profile)
        return not_yet(view, b, best, before, self.weights[0] * saved_s + self.weights[1], saved_s)


@dataclass(frozen=True, slots=True)
class Rule6:
    """Six weights: warmth, work still to do, crowding, eviction, calls of the function, and how long to wait."""

    name: str = "rule-6"
    epsilon: float = EPSILON
    row_wise: bool = False
    digest: str = ""
    weights: tuple[float, ...] = RULE_6_WEIGHTS

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """The weighted sum, in seconds that warmth saves."""
        b = view.believed()
        if not b.known:
            return by_the_books(view, b)
        o, w = outlook(view, b, everywhere=True), self.weights
        run_s = np.where(b.warm, b.profile[WARM_WORK], b.profile[COLD_WORK]) / b.profile[CORES_USED]
        crowd_s, lost_s = o.costs[:, 1] - run_s, o.costs[:, 3]
        scores: FloatArray = saved_by_warmth(b.profile) * o.warm + w[0] * o.work_left + w[1] * crowd_s + w[2] * lost_s + w[3] * o.same
        return scores

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """See `PatientPolicy`."""
        b = view.believed()
        saved_s = saved_by_warmth(b.profile)
        return not_yet(view, b, best, before, self.weights[4] * saved_s + self.weights[5] if b.known else saved_s, saved_s)


@dataclass(frozen=True, slots=True)
class Estimator:
    """The node on which the call is expected to be done soonest, what it takes from others counted; or "not yet"."""

    name: str = "estimator"
    epsilon: float = EPSILON
    row_wise: bool = False
    digest: str = ""

    def costs(self, view: CandidateView) -> FloatArray | None:
        """float64[candidates, 4] seconds: what a placement costs, part by part; None where too little is known of the function."""
        b = view.believed()
        return outlook(view, b).costs if b.known else None

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the seconds that a placement costs."""
        b = view.believed()
        return -outlook(view, b).costs.sum(axis=1) if b.known else by_the_books(view, b)

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """See `PatientPolicy`."""
        b = view.believed()
        if not b.known:
            saved_s = saved_by_warmth(b.profile)
            return not_yet(view, b, best, before, saved_s, saved_s)
        worth_s = float(-scores.max() - b.profile[WARM_WORK] / b.profile[CORES_USED])
        return not_yet(view, b, best, before, SURE * worth_s, worth_s)
