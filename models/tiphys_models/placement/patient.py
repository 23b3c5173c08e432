"""Policies that know the books: warm-first on them, two rules that may wait for an instance, and the estimator of completion times.

All of them score any number of candidates by the kernels that the simulator compiles. The three that may wait say "not yet" where a call
that would start cold is expected to be done sooner on an instance that is still busy; a function of which too little is known is placed
by the books alone, because profiles taken at their word are what hurts when they are wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import FloatArray, IntArray
from tiphys_models.placement import kernels
from tiphys_models.placement.believed import Believed
from tiphys_models.placement.candidates import CandidateView, PlacementMemory
from tiphys_models.placement.estimator import expected_rests, placement_costs, total_s
from tiphys_models.placement.learned_profiles import COLD_WORK, CORES_USED, WARM_WORK, saved_by_warmth
from tiphys_models.placement.waiting import SURE, NotYet, awaited_s

EPSILON = 1e-3
WAITS_WEIGHTS = (0.88, 0.22)
"""What a call waits for: so much of what warmth saves, and so many seconds."""
RULE_6_WEIGHTS = (-0.20, -0.35, -0.80, -0.97, 0.79, 0.45)
"""Weights of work still to do, crowding, what an eviction loses and open calls of the function; then what a call waits for."""


class _Open(NamedTuple):
    """The open calls that make a difference, in the order of the table of calls."""

    seen: IntArray
    """Place of each among all open calls."""
    on: IntArray
    """Place of its node among the candidates."""
    rests: FloatArray
    used: FloatArray


class Outlook(NamedTuple):
    """What a placement would mean for each candidate."""

    costs: FloatArray
    """[candidates, 4] of `estimator.placement_costs`."""
    calls: _Open


def _open_calls(view: CandidateView, b: Believed, *, everywhere: bool) -> _Open:
    """Open calls beside which this one would be crowded; `everywhere`: on all candidates.

    Where the cores suffice for all calls and this one, none takes anything from the others: nobody needs to know how long they last.
    """
    rows, threads = view.rows, b.threads()
    at = None if everywhere else np.flatnonzero(threads[rows] + b.profile[CORES_USED] > b.node_cores[rows])
    nodes = len(b.node_cores)
    asked = np.zeros(nodes + 1, np.bool_)  # an unknown node is -1: the last entry, which is nobody's
    place = np.empty(nodes, np.int64)
    if at is None:
        asked[rows], place[rows] = True, np.arange(len(rows))
    else:
        asked[rows[at]], place[rows[at]] = True, at
    seen = asked.take(b.open_row).nonzero()[0]
    row = b.open_row[seen]
    rests = _rests(b, seen, np.maximum(threads[row] / b.node_cores[row], 1.0), b.speed(row))
    return _Open(seen, place[row], rests, b.cores_used[b.open_function[seen]])


def _rests(b: Believed, seen: IntArray, crowding: FloatArray, speed: FloatArray) -> FloatArray:
    """What these open calls have still to go; crowding and speed are those of their nodes."""
    at = 2 * b.open_function[seen] + b.open_cold[seen]
    start_s, run_s = b.alone_start_s[at] / speed, b.alone_run_s[at] / speed
    return expected_rests(crowding, b.now_s - b.open_at_s[seen], start_s, run_s, b.least_share)


def outlook(view: CandidateView, b: Believed, *, everywhere: bool = False) -> Outlook:
    """What a placement would mean for each candidate, with the open calls there: all of them only if asked for `everywhere`."""
    calls = _open_calls(view, b, everywhere=everywhere)
    wanted = float(view.request.memory_bytes)
    spare = view.available_memory_bytes - b.idle_bytes
    value = b.idle_value_s((spare < wanted) & (b.idle_bytes > 0) & ~b.warm)
    cores, speed = b.node_cores[view.rows], b.speed(view.rows)
    rest_s = calls.rests[:, 0]
    return Outlook(
        placement_costs(cores, spare, b.idle_bytes, value, b.warm, speed, calls.on, rest_s, calls.used, b.profile, wanted), calls
    )


def left_and_same(view: CandidateView, b: Believed, o: Outlook) -> tuple[FloatArray, IntArray]:
    """Core-seconds still to do over cores, and open calls of the function, on each candidate of an outlook on all of them."""
    count, function = len(view.rows), b.open_function[o.calls.seen]
    work = np.where(b.open_cold[o.calls.seen], b.profiles[function, COLD_WORK], b.profiles[function, WARM_WORK])
    left: FloatArray = np.bincount(o.calls.on, work * o.calls.rests[:, 1], count) / b.node_cores[view.rows]
    same: IntArray = np.bincount(o.calls.on[function == b.own_function], minlength=count)
    return left, same


def by_the_books(view: CandidateView, b: Believed) -> FloatArray:
    """Scores of warm-first, warm being what the books list."""
    return kernels.warm_first(b.warm * 1.0, view.image_present, view.inflight, view.cores)


def own_rests_s(b: Believed) -> FloatArray:
    """Seconds that each open call of the function has still to go, on whichever node."""
    seen = np.flatnonzero(b.open_function == b.own_function)
    row, threads = b.open_row[seen], b.threads()
    there = row >= 0  # nobody knows yet how fast and how full the other nodes are
    crowding = np.where(there, np.maximum(threads[row] / b.node_cores[row], 1.0), 1.0)
    rests_s: FloatArray = _rests(b, seen, crowding, np.where(there, b.speed(row), 1.0))[:, 0]
    return rests_s


def not_yet(view: CandidateView, b: Believed, best: int, before: int, bar_s: float, worth_s: float) -> NotYet | None:
    """Whether a call waits: its node would start it cold, and an instance of its own is expected sooner than the bar. `worth_s` is what
    that instance would save it."""
    if b.warm[best] or not bar_s > 0 or b.own_function < 0:
        return None
    until_s = awaited_s(own_rests_s(b), before)
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
        left, same = left_and_same(view, b, o)
        run_s = np.where(b.warm, b.profile[WARM_WORK], b.profile[COLD_WORK]) / b.profile[CORES_USED]
        crowd_s, lost_s = o.costs[:, 1] - run_s, o.costs[:, 3]
        scores: FloatArray = saved_by_warmth(b.profile) * b.warm + w[0] * left + w[1] * crowd_s + w[2] * lost_s + w[3] * same
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
        return outlook(view, b).costs if b.known and b.measured else None

    def score(self, view: CandidateView, memory: PlacementMemory) -> FloatArray:
        """Minus the seconds that a placement costs."""
        costs = self.costs(view)
        return self.weighed(view, costs) if costs is not None else by_the_books(view, view.believed())

    def weighed(self, view: CandidateView, costs: FloatArray) -> FloatArray:
        """Scores of candidates whose placement costs so much."""
        return -total_s(costs)

    def not_yet(self, view: CandidateView, scores: FloatArray, best: int, before: int) -> NotYet | None:
        """See `PatientPolicy`."""
        b = view.believed()
        if not b.known:
            saved_s = saved_by_warmth(b.profile)
            return not_yet(view, b, best, before, saved_s, saved_s)
        if not b.measured:  # as `warm-first-waits`: who has not seen processor time takes crowded nodes for slow functions
            saved_s = saved_by_warmth(b.profile)
            return not_yet(view, b, best, before, WAITS_WEIGHTS[0] * saved_s + WAITS_WEIGHTS[1], saved_s)
        worth_s = float(-scores.max() - b.profile[WARM_WORK] / b.profile[CORES_USED])
        return not_yet(view, b, best, before, SURE * worth_s, worth_s)
