"""Bindings one by one, compiled: the very functions that a binder serves, between arrivals, ends and refreshes of the views."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiphys_models.base.arrays import BoolArray, FloatArray, HashArray, IntArray
from tiphys_models.lab.compiled import compiled
from tiphys_models.streams import kernels
from tiphys_models.streams.kernels import Columns, StreamNumbers

NEVER = 1e300
REJECTED, NOT_YET = -1, -2
NEXT_START, NEXT_END, LIVE = 0, 1, 2
"""Indices into `State.at`."""
TIE_SPARE, TIE_NAME, TIE_RANDOM = 0, 1, 2


class EdgeCloud(NamedTuple):
    """What never changes. Rows are access sites, columns offers."""

    columns: Columns
    network_ms: FloatArray
    mean_ms: FloatArray
    sigma_ms: FloatArray


class Streams(NamedTuple):
    """Streams in order of arrival, one entry each."""

    start_s: FloatArray
    end_s: FloatArray
    by_end: IntArray
    """Indices in order of their ends."""
    access: IntArray
    application: IntArray
    rate_qps: FloatArray
    size_kb: FloatArray
    max_delay_ms: FloatArray
    slack_ms: FloatArray
    min_accuracy: FloatArray
    draw: HashArray
    phase: FloatArray
    """Phase of each stream's first frame, in frames."""


class State(NamedTuple):
    """What changes; every array is written in place."""

    at: IntArray
    refresh_s: FloatArray
    """[1]: when views are refreshed next."""
    load_qps: FloatArray
    seen_qps: FloatArray
    """Load of every offer as each access site sees it, [access sites, offers]."""
    offer: IntArray
    """Offer of every stream, or REJECTED or NOT_YET."""
    added_qps: FloatArray
    live: IntArray
    """The first `at[LIVE]` entries: streams that are not over, rejected ones too."""
    backlog: FloatArray
    """Queries of the profiled size that wait (tick version)."""
    free_s: FloatArray
    """When every replica is free (event version)."""


class Options(NamedTuple):
    """Options of the scenario, and the action in force."""

    kinds: IntArray
    """A policy for every application."""
    weights: FloatArray
    """Weights of the learned score."""
    ceiling: float
    view_s: float
    own_at_once: bool
    tie: int


_draws = compiled(kernels.draws)
_beside = compiled(kernels.beside, draws=_draws)
_suits, _fits, _best = compiled(kernels.suits), compiled(kernels.fits), compiled(kernels.best)
_spare_qps = compiled(kernels.spare_qps)
_preference = compiled(kernels.preference, worth=compiled(kernels.worth, suits=_suits, expected_late=compiled(kernels.expected_late)))


@compiled
def bind_one(world: EdgeCloud, streams: Streams, state: State, i: int, options: Options) -> None:
    """Score, rank, select; loads grow."""
    a = streams.access[i]
    seen = state.load_qps if options.view_s == 0.0 else state.seen_qps[a]
    wish = StreamNumbers(
        streams.rate_qps[i], streams.size_kb[i], streams.max_delay_ms[i], streams.slack_ms[i], streams.min_accuracy[i], streams.draw[i]
    )
    c = _beside(world.columns, world.network_ms[a], seen, wish)
    feasible = _suits(c) & _fits(c, options.ceiling)
    tie: FloatArray
    if options.tie == TIE_SPARE:
        tie = _spare_qps(c)
    elif options.tie == TIE_NAME:
        tie = np.zeros(len(c.capacity_qps))
    else:
        tie = c.draw
    offer = _best(_preference(options.kinds[streams.application[i]], c, options.weights), feasible, tie)
    state.offer[i] = offer
    state.live[state.at[LIVE]] = i
    state.at[LIVE] += 1
    if offer >= 0:
        state.added_qps[i] = c.added_qps[offer]
        state.load_qps[offer] += c.added_qps[offer]
        if options.own_at_once:
            state.seen_qps[a, offer] += c.added_qps[offer]


@compiled
def bind_until(world: EdgeCloud, streams: Streams, state: State, until_s: float, options: Options) -> None:
    """Everything that happens before `until_s`, in order; of things at one moment ends come first, then refreshes."""
    count = len(streams.start_s)
    while True:
        starts = streams.start_s[state.at[NEXT_START]] if state.at[NEXT_START] < count else NEVER
        leaving = streams.by_end[min(state.at[NEXT_END], count - 1)]
        ends = streams.end_s[leaving] if state.at[NEXT_END] < count else NEVER
        now = min(starts, ends, state.refresh_s[0])
        if now >= until_s:
            return
        if ends == now:
            state.at[NEXT_END] += 1
            offer = state.offer[leaving]
            if offer >= 0:
                state.load_qps[offer] -= state.added_qps[leaving]
                if options.own_at_once:
                    state.seen_qps[streams.access[leaving], offer] -= state.added_qps[leaving]
        elif state.refresh_s[0] == now:
            state.seen_qps[:] = state.load_qps
            state.refresh_s[0] = now + options.view_s if options.view_s > 0.0 else NEVER
        else:
            bind_one(world, streams, state, state.at[NEXT_START], options)
            state.at[NEXT_START] += 1


@compiled
def empty_feasible(world: EdgeCloud, streams: Streams) -> BoolArray:
    """Whether each stream could be bound in an empty system."""
    found = np.zeros(len(streams.start_s), np.bool_)
    idle = np.zeros(len(world.columns.capacity_qps))
    for i in range(len(found)):
        wish = StreamNumbers(
            streams.rate_qps[i], streams.size_kb[i], streams.max_delay_ms[i], streams.slack_ms[i], streams.min_accuracy[i], streams.draw[i]
        )
        c = _beside(world.columns, world.network_ms[streams.access[i]], idle, wish)
        found[i] = np.any(_suits(c) & _fits(c, 1.0))
    return found
